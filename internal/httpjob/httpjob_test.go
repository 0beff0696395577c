package httpjob

import (
	"bytes"
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/pem"
	"fmt"
	"io"
	"log"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"
	"time"
)

const secret = "s3cr3t"

// request returns a request for a URL with a secret path, that expects 2xx.
func request(url string) Request {
	return Request{Method: "GET", URL: url + "/" + secret, Header: http.Header{"X-Key": {secret}, "User-Agent": {"cronclave"}, "Cronclave-Fencing-Token": {"7"}},
		Expected: func(status int) bool { return status/100 == 2 }, Keep: 10, Proxy: "none"}
}

// send sends a request, checks that the error is the wanted one, and that it contains no secret.
func send(t *testing.T, r Request, want string) Answer {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
	defer cancel()
	a := Send(ctx, r)
	if got := fmt.Sprint(a.Err); !strings.HasPrefix(got, want) || strings.Contains(got, secret) {
		t.Errorf("%s %s: %s, want %s", r.Method, r.URL, got, want)
	}
	return a
}

func TestAnswers(t *testing.T) {
	t.Parallel()
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		switch body, _ := io.ReadAll(r.Body); string(body) {
		case "echo":
			fmt.Fprintf(w, "one\ntwo\n%s %s", r.Method, r.Host)
		case "fail":
			http.Error(w, secret, http.StatusServiceUnavailable)
		case "break":
			w.Header().Set("Content-Length", "100")
			_, _ = io.WriteString(w, "begun")
		case "endless":
			for line := bytes.Repeat([]byte("x"), 1<<20); ; {
				if _, err := w.Write(line); err != nil {
					return
				}
			}
		case "odd":
			w.WriteHeader(299)
		}
	}))
	defer s.Close()
	var lines []string
	r := request(s.URL)
	r.Method, r.Body, r.Line = "POST", []byte("echo"), func(_ string, line []byte) { lines = append(lines, string(line)) }
	r.Header.Set("Host", "other.example")
	a := send(t, r, "<nil>")
	if got := strings.Join(lines, "|"); got != "one|two|POST other.example" || string(a.Tail) != "er.example" || a.Cut != 16 || a.Status != 200 {
		t.Errorf("%q, %q after %d bytes, %d", got, a.Tail, a.Cut, a.Status)
	}
	r.Line = nil
	for body, want := range map[string]string{"fail": "the answer is 503 Service Unavailable", "break": "the answer broke off: it closed the connection", "odd": "<nil>",
		"endless": "the answer is longer than 64MiB"} {
		r.Body = []byte(body)
		if a = send(t, r, want); a.Status == 0 {
			t.Errorf("%s: no status", body)
		}
	}
	if r.Body = []byte("fail"); string(send(t, r, "the answer is 503").Tail) != "s3cr3t\n" {
		t.Error("the answer of a failure is not kept")
	}
	r.Expected = func(status int) bool { return status == 503 }
	send(t, r, "<nil>")
	s.Close()
	send(t, r, "no answer: connect to 127.0.0.1:")
}

// A request is sent once, even if the server closes the connection without an answer: net/http would repeat it on a connection that was used before.
func TestRequestIsSentOnce(t *testing.T) {
	t.Parallel()
	var seen atomic.Int64
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		if seen.Add(1) > 1 {
			panic(http.ErrAbortHandler)
		}
	}))
	defer s.Close()
	send(t, request(s.URL), "<nil>")
	send(t, request(s.URL), "no answer: it closed the connection")
	if n := seen.Load(); n != 2 {
		t.Errorf("%d requests arrived for two that were sent", n)
	}
}

// The end of the context closes the connection, before and after the answer has begun.
func TestCancelClosesTheConnection(t *testing.T) {
	t.Parallel()
	for _, path := range []string{"/silent", "/begun"} {
		ctx, cancel := context.WithCancel(t.Context())
		gone := make(chan struct{})
		s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			if strings.HasPrefix(r.URL.Path, "/begun") {
				_, _ = io.WriteString(w, "begun\n")
				_ = http.NewResponseController(w).Flush()
			} else {
				cancel()
			}
			<-r.Context().Done()
			close(gone)
		}))
		r := request(s.URL + path)
		r.Line = func(string, []byte) { cancel() }
		if a := Send(ctx, r); a.Err == nil || strings.Contains(a.Err.Error(), secret) {
			t.Errorf("%s: %v", path, a.Err)
		}
		<-gone
		s.Close()
		cancel()
	}
}

func TestRedirects(t *testing.T) {
	t.Parallel()
	elsewhere := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		if all := fmt.Sprint(r.Header, string(body)); strings.Contains(all, secret) || strings.Contains(all, "Cronclave-") || r.UserAgent() != "cronclave" {
			t.Errorf("another host received %v", all)
		}
		w.WriteHeader(http.StatusAccepted)
	}))
	defer elsewhere.Close()
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		switch r.URL.Query().Get("to") {
		case "near":
			http.Redirect(w, r, "/there", http.StatusFound)
		case "away":
			http.Redirect(w, r, elsewhere.URL+"/there", http.StatusFound)
		case "body":
			http.Redirect(w, r, elsewhere.URL+"/there", http.StatusTemporaryRedirect)
		case "round":
			http.Redirect(w, r, r.URL.String(), http.StatusFound)
		default:
			if r.Header.Get("Cronclave-Fencing-Token") != "7" || r.Header.Get("X-Key") != secret || r.Referer() != "" {
				t.Errorf("the same host received %v", r.Header)
			}
		}
	}))
	defer s.Close()
	for _, tt := range []struct {
		to        string
		redirects int
		want      string
	}{
		{"near", 0, "the answer is 302 Found, which was not followed"},
		{"near", 1, "<nil>"},
		{"away", 1, "<nil>"},
		{"away", 0, "the answer is 302 Found, which was not followed"},
		{"body", 1, "the answer is 307 Temporary Redirect, which was not followed"},
		{"round", 3, "the answer is 302 Found, which was not followed"},
	} {
		r := request(s.URL)
		r.Method, r.Body, r.URL, r.Redirects = "POST", []byte(secret), s.URL+"/"+secret+"?to="+tt.to, tt.redirects
		send(t, r, tt.want)
	}
}

// startTLS starts a server that asks for a client certificate, and returns certificates for its clients. All such servers have the same certificate, for
// 127.0.0.1 and example.com, and it serves as a client certificate, too.
func startTLS(t *testing.T, handler http.HandlerFunc) (*httptest.Server, TLS) {
	t.Helper()
	s := httptest.NewUnstartedServer(handler)
	s.Config.ErrorLog = log.New(io.Discard, "", 0)
	s.TLS = &tls.Config{ClientAuth: tls.RequestClientCert}
	s.StartTLS()
	t.Cleanup(s.Close)
	key, err := x509.MarshalPKCS8PrivateKey(s.TLS.Certificates[0].PrivateKey)
	if err != nil {
		t.Fatal(err)
	}
	certificate := pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: s.Certificate().Raw})
	return s, TLS{CA: certificate, Cert: certificate, Key: pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: key})}
}

// A client certificate and a server name are for the server of the URL. Another server gets no request that is made with them.
func TestCertificatesStayWithTheirServer(t *testing.T) {
	t.Parallel()
	elsewhere, _ := startTLS(t, func(w http.ResponseWriter, r *http.Request) {
		fmt.Fprint(w, "elsewhere ", len(r.TLS.PeerCertificates), " ", r.TLS.ServerName)
	})
	plain := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { fmt.Fprint(w, "plain") }))
	defer plain.Close()
	s, all := startTLS(t, func(w http.ResponseWriter, r *http.Request) {
		switch r.URL.Path {
		case "/away/" + secret:
			http.Redirect(w, r, elsewhere.URL, http.StatusFound)
		case "/plain/" + secret:
			http.Redirect(w, r, plain.URL, http.StatusFound)
		case "/near/" + secret:
			http.Redirect(w, r, "/there", http.StatusFound)
		default:
			fmt.Fprint(w, "near ", len(r.TLS.PeerCertificates), " ", r.TLS.ServerName)
		}
	})
	const refused = "the answer is 302 Found, which was not followed"
	withCert, withName, bare := all, TLS{CA: all.CA, ServerName: "example.com"}, TLS{CA: all.CA}
	for _, tt := range []struct {
		name, path string
		tls        TLS
		err, body  string
	}{
		{"a certificate", "/near", withCert, "<nil>", "near 1 "},
		{"a certificate", "/away", withCert, refused, ""},
		{"a certificate", "/plain", withCert, refused, ""},
		{"a name", "/near", withName, "<nil>", "near 0 example.com"},
		{"a name", "/away", withName, refused, ""},
		{"a name", "/plain", withName, refused, ""},
		{"neither", "/away", bare, "<nil>", "elsewhere 0 "},
		{"neither", "/plain", bare, "<nil>", "plain"},
	} {
		r := request(s.URL + tt.path)
		r.TLS, r.Redirects, r.Keep = tt.tls, 1, 100
		if a := send(t, r, tt.err); tt.err != refused && string(a.Tail) != tt.body {
			t.Errorf("%s with %s: the answer is %q, want %q", tt.path, tt.name, a.Tail, tt.body)
		}
	}
}

func TestCertificates(t *testing.T) {
	t.Parallel()
	s, own := startTLS(t, func(w http.ResponseWriter, r *http.Request) {
		fmt.Fprint(w, len(r.TLS.PeerCertificates))
	})
	r := request(s.URL)
	send(t, r, "no answer: its certificate is of an unknown authority")
	r.TLS.CA = own.CA
	if a := send(t, r, "<nil>"); string(a.Tail) != "0" {
		t.Errorf("%s certificates were sent", a.Tail)
	}
	r.TLS.Cert, r.TLS.Key = own.Cert, own.Key
	if a := send(t, r, "<nil>"); string(a.Tail) != "1" {
		t.Errorf("%s certificates were sent", a.Tail)
	}
	r.TLS.ServerName = "other.test"
	send(t, r, "no answer: its certificate is for another name")
	r.TLS = TLS{CA: []byte("-----BEGIN NONSENSE")}
	send(t, r, "ca_file holds no certificate")
	r.TLS = TLS{Cert: own.CA, Key: own.CA}
	send(t, r, "read cert_file and key_file: ")
}

func TestProxy(t *testing.T) {
	t.Parallel()
	proxy := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Method == http.MethodConnect {
			http.Error(w, secret, http.StatusProxyAuthRequired)
			return
		}
		fmt.Fprint(w, r.URL.Host)
	}))
	defer proxy.Close()
	r := request("http://h.example")
	r.Proxy = proxy.URL
	if a := send(t, r, "<nil>"); string(a.Tail) != "h.example" {
		t.Errorf("the proxy was asked for %q", a.Tail)
	}
	r.URL = "https://h.example/" + secret
	send(t, r, "no answer: the proxy answered 407 Proxy Authentication Required")
}
