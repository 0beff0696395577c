package web

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/http/cookiejar"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/cronclave/cronclave/integration/harness"
)

// nginxProgram finds nginx, and installs it where that is allowed.
func nginxProgram(t *testing.T) string {
	t.Helper()
	find := func() (string, error) {
		if path, err := exec.LookPath("nginx"); err == nil {
			return path, nil
		}
		return exec.LookPath("/usr/sbin/nginx") // which is in the PATH of root alone
	}
	path, err := find()
	if err != nil && os.Getenv("CRONCLAVE_TEST_INSTALL") == "1" {
		if err = harness.Install(t.Context(), "nginx-light"); err == nil {
			path, err = find()
		}
	}
	if err != nil {
		t.Fatalf("no nginx for the test of base_path; install it (apt-get install nginx-light; brew install nginx), or as root on Debian or Ubuntu run make test, which does: %v", err)
	}
	return path
}

// startNginx starts a proxy before a server. It passes paths below /kept/ on as they are, and takes the rest off below /stripped/cron/. It returns its address.
func startNginx(t *testing.T, upstream string) string {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	harness.Must(t, err)
	address := l.Addr().String()
	harness.Must(t, l.Close())
	dir := t.TempDir()
	harness.Must(t, os.Chmod(dir, 0o700))
	conf := filepath.Join(dir, "nginx.conf")
	harness.Must(t, os.WriteFile(conf, fmt.Appendf(nil, `daemon off;
master_process off;
pid %[1]s/pid;
error_log stderr warn;
events {}
http {
  access_log off;
  client_body_temp_path %[1]s/body;
  proxy_temp_path %[1]s/proxy;
  fastcgi_temp_path %[1]s/fastcgi;
  uwsgi_temp_path %[1]s/uwsgi;
  scgi_temp_path %[1]s/scgi;
  server {
    listen %[2]s;
    proxy_http_version 1.1;
    proxy_set_header Host $http_host;
    proxy_set_header X-Forwarded-For $proxy_add_x_forwarded_for;
    location / { return 404 "another service"; }
    location /kept/cron/ { proxy_pass %[3]s; }
    location /stripped/cron/ { proxy_pass %[3]s/; }
  }
}
`, dir, address, upstream), 0o600))
	ctx, cancel := context.WithCancel(context.Background())
	cmd := exec.CommandContext(ctx, nginxProgram(t), "-p", dir, "-c", conf)
	var said strings.Builder
	cmd.Stderr = &said
	harness.Must(t, cmd.Start())
	t.Cleanup(func() {
		cancel()
		_ = cmd.Wait() // killed
		if t.Failed() {
			t.Logf("nginx said: %s", said.String())
		}
	})
	harness.Eventually(t, harness.Soon, "nginx", func() bool {
		conn, err := net.DialTimeout("tcp", address, time.Second)
		if err == nil {
			_ = conn.Close()
		}
		return err == nil
	})
	return address
}

var assetLink = regexp.MustCompile(`(?:href|src)="([^"]*/assets/[^"]*)"`)

// A browser and a program use everything below a path of a proxy that has other services, whether the proxy takes the path off or not. The replica knows the
// address of the client.
func TestBasePathBehindAProxy(t *testing.T) {
	t.Parallel()
	for _, base := range []string{"/kept/cron", "/stripped/cron"} {
		t.Run(strings.Split(base, "/")[1], func(t *testing.T) {
			t.Parallel()
			c := harness.NewCluster(t, fmt.Sprintf(`
server = { listen = "127.0.0.1:0", token_file = %q, base_path = %q, trusted_proxies = ["127.0.0.1"] }
[jobs.quiet]
schedule = "0 0 1 1 *"
command = ["sh", "-c", "echo hello"]
`, usersFile(t), base))
			r := c.StartAll(t, 1)[0]
			c.AwaitReplicas(t, 1)
			harness.Eventually(t, harness.Soon, "readiness", func() bool {
				code, _ := harness.AskAPI(t, "GET", r.ApiURL(t)+"/readyz", "", "")
				return code == http.StatusOK
			})
			address := startNginx(t, r.ApiURL(t))
			browser := browserFrom(t, "127.0.0.2")
			site := "http://" + address + base

			body := browser.load(t, site+"/cluster") // which leads to the login
			if !strings.Contains(body, `action="`+base+`/login"`) {
				t.Fatalf("the login page: %s", body)
			}
			body = browser.post(t, site+"/login", url.Values{"token": {annsToken}, "next": {"/cluster"}})
			if !strings.Contains(body, "ann") || !strings.Contains(body, `href="`+base+`/timeline"`) {
				t.Fatalf("the page after the login: %s", body)
			}
			links := assetLink.FindAllStringSubmatch(body, -1)
			if len(links) < 3 {
				t.Errorf("%d assets", len(links))
			}
			for _, link := range links {
				browser.load(t, "http://"+address+link[1])
			}
			if body := browser.post(t, site+"/jobs/quiet/pause", url.Values{"reason": {"behind a proxy"}}); !strings.Contains(body, "behind a proxy") {
				t.Errorf("the page after a form: %s", body)
			}
			if body := browser.post(t, site+"/logout", nil); !strings.Contains(body, `action="`+base+`/login"`) {
				t.Errorf("the page after logging out: %s", body)
			}

			if code, body := harness.AskAPI(t, "GET", site+"/api/v1/jobs/quiet", bobsToken, ""); code != http.StatusOK || !strings.Contains(body, "behind a proxy") {
				t.Errorf("the API: %d %s", code, body)
			}
			browser.awaitEvent(t, site+"/api/v1/jobs/quiet/output")

			browser.load(t, site+"/healthz")
			req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, site+"/api/v1/status", nil)
			harness.Must(t, err)
			req.Header.Set("Authorization", "Bearer not-a-token-of-anybody")
			req.Header.Set("X-Forwarded-For", "203.0.113.9") // which anybody may write
			resp, err := browser.client.Do(req)
			harness.Must(t, err)
			harness.Must(t, resp.Body.Close())
			if got := r.WaitLog(t, harness.Soon, "the refusal", harness.MessageHas("HTTP requests refused: their token is unknown"))["address"]; got != "127.0.0.2:0" {
				t.Errorf("the refused client is %v", got)
			}
		})
	}
}

// browser is a client with cookies that follows redirections.
type browser struct{ client *http.Client }

func browserFrom(t *testing.T, address string) browser {
	t.Helper()
	jar, err := cookiejar.New(nil)
	harness.Must(t, err)
	dialer := &net.Dialer{LocalAddr: &net.TCPAddr{IP: net.ParseIP(address)}}
	transport := &http.Transport{DialContext: dialer.DialContext}
	t.Cleanup(transport.CloseIdleConnections)
	return browser{&http.Client{Jar: jar, Transport: transport}}
}

func (b browser) load(t *testing.T, address string) string {
	t.Helper()
	return b.send(t, http.MethodGet, address, "")
}

func (b browser) post(t *testing.T, address string, form url.Values) string {
	t.Helper()
	return b.send(t, http.MethodPost, address, form.Encode())
}

// send sends a request of a page, and demands that it succeeds.
func (b browser) send(t *testing.T, method, address, form string) string {
	t.Helper()
	req, err := http.NewRequestWithContext(t.Context(), method, address, strings.NewReader(form))
	harness.Must(t, err)
	req.Header.Set("Accept", "text/html")
	if method == http.MethodPost {
		req.Header.Set("Content-Type", "application/x-www-form-urlencoded")
	}
	resp, err := b.client.Do(req)
	harness.Must(t, err)
	defer resp.Body.Close()
	var body strings.Builder
	_, err = bufio.NewReader(resp.Body).WriteTo(&body)
	harness.Must(t, err)
	if resp.StatusCode != http.StatusOK {
		t.Fatalf("%s %s: %d %s", method, address, resp.StatusCode, body.String())
	}
	return body.String()
}

// awaitEvent demands that the first event of a stream arrives while it is open.
func (b browser) awaitEvent(t *testing.T, address string) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), harness.Soon)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, address, nil)
	harness.Must(t, err)
	req.Header.Set("Authorization", "Bearer "+bobsToken)
	resp, err := b.client.Do(req)
	harness.Must(t, err)
	defer resp.Body.Close()
	line, err := bufio.NewReader(resp.Body).ReadString('\n')
	if err != nil && !errors.Is(err, context.Canceled) || !strings.HasPrefix(line, "event: ") && !strings.HasPrefix(line, "data: ") {
		t.Errorf("%s: %d %q %v", address, resp.StatusCode, line, err)
	}
}
