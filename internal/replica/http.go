package replica

import (
	"context"
	"fmt"
	"net/http"
	"strconv"
	"strings"
	"time"

	"github.com/cronclave/cronclave/internal/config"
	"github.com/cronclave/cronclave/internal/httpjob"
	"github.com/cronclave/cronclave/internal/safefile"
	"github.com/cronclave/cronclave/scheduler"
)

// An httpRunner sends the request of a job. No process is involved, so nothing stops the request while this process is frozen.
type httpRunner struct {
	job   *config.Job
	trust safefile.Trust // the permitted owners of the job's files
	open  OpenOutput
}

// Run sends the request, and returns when the answer has ended or the connection is closed. The end of ctx closes the connection.
func (r *httpRunner) Run(ctx context.Context, current *scheduler.Run) scheduler.Result {
	request, err := r.newRequest(ctx, current)
	if err != nil {
		return unpreparedResult("prepare the request", err)
	}
	if err := current.Begin(); err != nil {
		return scheduler.Result{Err: err}
	}
	current.Began() // from now on, the server may have received the request
	output := r.open(r.job, current)
	defer output.End()
	request.Line = output.Line
	answer := httpjob.Send(ctx, request)
	return scheduler.Result{Err: answer.Err, Output: answer.Tail, OutputCut: answer.Cut, HTTPStatus: answer.Status}
}

// maxBody bounds body_file.
const maxBody = 16 << 20

// newRequest reads the files of the request.
func (r *httpRunner) newRequest(ctx context.Context, current *scheduler.Run) (httpjob.Request, error) {
	h := r.job.HTTP
	q := httpjob.Request{Method: h.Method, URL: h.URL.Value, Body: []byte(h.Body.Value), Expected: h.Expects, Redirects: h.Redirects, Proxy: h.Proxy.Value,
		TLS: httpjob.TLS{ServerName: h.TLS.ServerName}, Keep: r.job.Output.Keep}
	var err error
	if q.Header, err = readHeader(ctx, h.HeaderTable, r.trust); err != nil {
		return q, err
	}
	for name, value := range ownHeaders(current) {
		q.Header.Set(name, value)
	}
	for _, file := range []struct {
		key, path string
		most      int64
		content   *[]byte
	}{
		{"body_file", h.BodyFile.Value, maxBody, &q.Body},
		{"ca_file", h.TLS.CAFile, safefile.MaxOwn, &q.TLS.CA}, {"cert_file", h.TLS.CertFile, safefile.MaxOwn, &q.TLS.Cert}, {"key_file", h.TLS.KeyFile, safefile.MaxOwn, &q.TLS.Key},
	} {
		if file.path == "" {
			continue
		}
		if *file.content, err = safefile.Read(ctx, file.path, safefile.Policy{MaxBytes: file.most, Trust: r.trust}); err != nil {
			return q, fmt.Errorf("%s: %w", file.key, err)
		}
	}
	return q, nil
}

// ownHeaders returns the headers that cronclave sets.
func ownHeaders(run *scheduler.Run) map[string]string {
	headers := map[string]string{"Cronclave-Job": run.Job, "Cronclave-Run-Id": run.ID, "Cronclave-Attempt": strconv.Itoa(run.Attempt)}
	if run.Token != 0 {
		headers["Cronclave-Fencing-Token"] = strconv.FormatInt(run.Token, 10)
	}
	if run.Traceparent != "" {
		headers["Traceparent"] = run.Traceparent
	}
	if !run.Tick.IsZero() {
		headers["Cronclave-Tick"] = run.Tick.UTC().Format(time.RFC3339)
	}
	return headers
}

// readHeader returns headers, some of them with values from files. Its errors contain no value.
func readHeader(ctx context.Context, table config.HeaderTable, trust safefile.Trust) (http.Header, error) {
	header := http.Header{"User-Agent": {"cronclave"}}
	for name, value := range table.Headers {
		header.Set(name, value.Value)
	}
	for name, file := range table.HeadersFromFile {
		content, err := safefile.Read(ctx, file.Value, safefile.Policy{MaxBytes: safefile.MaxEnvValue, Trust: trust})
		if err != nil {
			return nil, fmt.Errorf("headers_from_file %s: %w", name, err)
		}
		value := strings.TrimSuffix(strings.TrimSuffix(string(content), "\n"), "\r")
		if err := config.CheckHeaderValue(value); err != nil {
			return nil, fmt.Errorf("headers_from_file %s: %s %w", name, file.Value, err)
		}
		header.Set(name, value)
	}
	return header, nil
}
