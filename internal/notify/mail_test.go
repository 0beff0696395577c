package notify

import (
	"bufio"
	"crypto/tls"
	"encoding/base64"
	"encoding/pem"
	"fmt"
	"io"
	"mime"
	"mime/quotedprintable"
	"net"
	"net/http/httptest"
	"net/mail"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/cronclave/cronclave/internal/config"
)

// mailServer is a small SMTP server. It records the commands and mails that it gets.
type mailServer struct {
	t        *testing.T
	addr     string
	cfg      *tls.Config
	implicit bool
	startTLS bool
	login    bool
	// answers has an answer for a command, in the place of the usual one. The answer "hang up" ends the connection.
	answers map[string]string

	mu       sync.Mutex
	commands []string
	mails    []string
}

// startMail starts a server and returns it with a file that has its certificate.
func startMail(t *testing.T, s *mailServer) (ca string) {
	t.Helper()
	certified := httptest.NewUnstartedServer(nil) // for its certificate of 127.0.0.1
	certified.StartTLS()
	s.t, s.cfg = t, &tls.Config{Certificates: certified.TLS.Certificates, MinVersion: tls.VersionTLS12}
	ca = file(t, "ca.pem", string(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: certified.Certificate().Raw})))
	certified.Close()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	s.addr = l.Addr().String()
	var serving sync.WaitGroup
	serving.Go(func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			serving.Go(func() { s.serve(c) })
		}
	})
	t.Cleanup(func() {
		l.Close()
		serving.Wait()
	})
	return ca
}

func (s *mailServer) serve(raw net.Conn) {
	c := raw
	defer func() { c.Close() }()
	if s.implicit {
		c = tls.Server(raw, s.cfg)
	}
	in := bufio.NewReader(c)
	say := func(command, usual string) (goOn bool) {
		if answer, set := s.answers[command]; set {
			usual = answer
		}
		if usual == "hang up" {
			return false
		}
		fmt.Fprintf(c, "%s\r\n", usual)
		return usual[0] < '4'
	}
	if !say("greeting", "220 mail.example ESMTP") {
		return
	}
	for {
		line, err := in.ReadString('\n')
		if err != nil {
			return
		}
		line = strings.TrimSpace(line)
		s.mu.Lock()
		s.commands = append(s.commands, line)
		s.mu.Unlock()
		verb := strings.ToUpper(strings.Fields(line + " ?")[0])
		switch verb {
		case "EHLO":
			_, secure := c.(*tls.Conn)
			fmt.Fprint(c, "250-mail.example\r\n250-ENHANCEDSTATUSCODES\r\n")
			if s.startTLS && !secure {
				fmt.Fprint(c, "250-STARTTLS\r\n")
			}
			if s.login {
				fmt.Fprint(c, "250-AUTH PLAIN LOGIN\r\n")
			}
			fmt.Fprint(c, "250 8BITMIME\r\n")
		case "STARTTLS":
			say(verb, "220 go")
			c = tls.Server(raw, s.cfg)
			in = bufio.NewReader(c)
		case "AUTH":
			say(verb, "235 welcome")
		case "DATA":
			if !say(verb, "354 go on") {
				continue
			}
			text, err := readMail(in)
			if err != nil {
				return
			}
			s.mu.Lock()
			s.mails = append(s.mails, text)
			s.mu.Unlock()
			if !say(".", "250 2.0.0 taken") && s.answers["."] == "hang up" {
				return
			}
		case "QUIT":
			say(verb, "221 bye")
			return
		default:
			if !say(verb, "250 ok") && s.answers[verb] == "hang up" {
				return
			}
		}
	}
}

func readMail(in *bufio.Reader) (string, error) {
	var b strings.Builder
	for {
		line, err := in.ReadString('\n')
		if err != nil || line == ".\r\n" {
			return b.String(), err
		}
		b.WriteString(line)
	}
}

func mailTarget(t *testing.T, address, ca string) config.Notify {
	t.Helper()
	return config.Notify{Kind: "mail", URL: address, CAFile: ca, TokenFile: file(t, "password", "pass-s3cr3t\n"), From: "Cron <cron@example.org>", To: []string{"a@example.org", "B <b@example.org>"}}
}

// TestMail sends by STARTTLS and by implicit TLS with a password, and without both in a trusted network.
func TestMail(t *testing.T) {
	t.Parallel()
	for scheme, s := range map[string]*mailServer{"smtps": {implicit: true, login: true}, "smtp": {startTLS: true, login: true}, "smtp+plain": {startTLS: true}} {
		ca := startMail(t, s)
		user := map[bool]string{true: "cron%40example.org@"}[s.login]
		for _, tt := range messages() {
			if got := newSender(t, mailTarget(t, scheme+"://"+user+s.addr, ca)).Send(t.Context(), tt.m); got != (Result{Answer: "250 accepted by the mail server"}) {
				t.Errorf("%s, %s: %+v", scheme, tt.name, got)
			}
		}
		s.mu.Lock()
		auth := "AUTH PLAIN " + base64.StdEncoding.EncodeToString([]byte("\x00cron@example.org\x00pass-s3cr3t"))
		if slices.Contains(s.commands, auth) != s.login || slices.Contains(s.commands, "STARTTLS") != (scheme == "smtp") {
			t.Errorf("%s: %q", scheme, s.commands)
		}
		if len(s.mails) != len(messages()) || !slices.Contains(s.commands, "RCPT TO:<b@example.org>") {
			t.Errorf("%s: %d mails, %q", scheme, len(s.mails), s.commands)
		}
		if scheme == "smtp" {
			golden(t, "mail", strings.ReplaceAll(strings.Join(s.mails, "\n====\n"), "\r\n", "\n"))
			checkMails(t, s.mails)
		}
		s.mu.Unlock()
	}
}

// checkMails checks what RFC 5322 demands, and that no text of an event became a header.
func checkMails(t *testing.T, mails []string) {
	t.Helper()
	for i, text := range mails {
		for line := range strings.Lines(text) {
			if len(line) > 1000 {
				t.Errorf("a line of %d octets", len(line))
			}
		}
		m, err := mail.ReadMessage(strings.NewReader(text))
		if err != nil {
			t.Fatal(err)
		}
		want := map[string]string{"From": `"Cron" <cron@example.org>`, "To": `<a@example.org>, "B" <b@example.org>`, "Auto-Submitted": "auto-generated",
			"Message-Id": "<" + messageID(messages()[i].m) + "@example.org>", "Date": "Fri, 27 Nov 2026 04:00:05 +0000", "User-Agent": "cronclave/1.2.3"}
		for name, value := range want {
			if !slices.Equal(m.Header[name], []string{value}) {
				t.Errorf("%s: %q, want %q", name, m.Header[name], value)
			}
		}
		subject, err := new(mime.WordDecoder).DecodeHeader(m.Header.Get("Subject"))
		if err != nil || subject != renderText(config.Notify{}, messages()[i].m).title {
			t.Errorf("subject %q, %v", subject, err)
		}
		body, err := io.ReadAll(quotedprintable.NewReader(m.Body))
		if err != nil || len(body) == 0 || strings.ContainsAny(string(body), "\x00\x1b") {
			t.Errorf("body %.100q, %v", body, err)
		}
	}
}

// TestMailSubjectIsOneHeader tries to write headers through a template.
func TestMailSubjectIsOneHeader(t *testing.T) {
	t.Parallel()
	s := &mailServer{}
	startMail(t, s)
	target := mailTarget(t, "smtp+plain://"+s.addr, "")
	target.Title = "{text}\r\nBcc: evil@example.org\r\n\r\n{text}"
	m := messages()[4].m
	newSender(t, target).Send(t.Context(), m)
	got, err := mail.ReadMessage(strings.NewReader(s.mails[0]))
	if err != nil || got.Header.Get("Bcc") != "" || slices.ContainsFunc(s.commands, func(c string) bool { return strings.Contains(c, "evil") }) {
		t.Errorf("%v, %v, %q", err, got.Header, s.commands)
	}
}

// TestMailVerdicts lets the server fail at each step.
func TestMailVerdicts(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		command, answer string
		want            Result
	}{
		{"greeting", "554 5.3.2 no", Result{Never, 0, "554: 5.3.2 no", false}},
		{"greeting", "421 4.3.2 busy", Result{Later, 0, "421: 4.3.2 busy", false}},
		{"greeting", "hang up", Result{Later, 0, "no answer: it closed the connection", false}},
		{"AUTH", "535 5.7.8 wrong login pass-s3cr3t", Result{Never, 0, "535", true}},
		{"AUTH", "454 4.7.0 later", Result{Later, 0, "454: 4.7.0 later", false}},
		{"MAIL", "550 5.7.1 not you", Result{Never, 0, "550 5.7.1 (sending SMTP MAIL FROM command)", false}},
		{"MAIL", "451 4.7.1 greylisted", Result{Later, 0, "451 4.7.1 (sending SMTP MAIL FROM command)", false}},
		{"RCPT", "550 5.1.1 nobody", Result{Never, 0, "550 5.1.1 (sending SMTP RCPT TO command)", false}},
		{"RCPT", "452 4.2.2 full", Result{Later, 0, "452 4.2.2 (sending SMTP RCPT TO command)", false}},
		{"DATA", "552 5.2.3 too large", Result{Never, 0, "552 5.2.3 (sending SMTP DATA command)", false}},
		{".", "550 5.7.1 spam", Result{Never, 0, "550 5.7.1 (closing SMTP DATA writer)", false}},
		{".", "451 4.3.0 later", Result{Later, 0, "451 4.3.0 (closing SMTP DATA writer)", false}},
		{".", "hang up", Result{Unknown, 0, "no answer after the mail was sent: it closed the connection", false}},
		{"RSET", "hang up", Result{Done, 0, "250 accepted by the mail server", false}},
		{"QUIT", "hang up", Result{Done, 0, "250 accepted by the mail server", false}},
	} {
		s := &mailServer{implicit: true, login: true, answers: map[string]string{tt.command: tt.answer}}
		ca := startMail(t, s)
		got := newSender(t, mailTarget(t, "smtps://cron@"+s.addr, ca)).Send(t.Context(), messages()[0].m)
		got.Answer = strings.Replace(got.Answer, "connection reset by peer", "it closed the connection", 1) // which one depends on timing
		if got != tt.want {
			t.Errorf("%s %s: %+v, want %+v", tt.command, tt.answer, got, tt.want)
		}
	}
}

// TestMailIsNotSentUnprotected checks that no password and no mail leave without TLS, and that a server without an answer is given up.
func TestMailIsNotSentUnprotected(t *testing.T) {
	t.Parallel()
	s := &mailServer{login: true}
	ca := startMail(t, s)
	if got := newSender(t, mailTarget(t, "smtp://cron@"+s.addr, ca)).Send(t.Context(), messages()[0].m); got.Verdict != Never || !strings.Contains(got.Answer, "STARTTLS") {
		t.Errorf("%+v", got)
	}
	if got := newSender(t, mailTarget(t, "smtp+plain://cron@"+s.addr, ca)).Send(t.Context(), messages()[0].m); got.Verdict != Never || !strings.Contains(got.Answer, "no login") {
		t.Errorf("%+v", got)
	}
	for _, command := range s.commands {
		if strings.HasPrefix(command, "AUTH") || strings.HasPrefix(command, "MAIL") {
			t.Error(command)
		}
	}
	other := &mailServer{startTLS: true, login: true}
	startMail(t, other)
	if got := newSender(t, mailTarget(t, "smtp://cron@"+other.addr, "")).Send(t.Context(), messages()[0].m); got.Verdict != Later || !strings.Contains(got.Answer, "unknown authority") {
		t.Errorf("%+v", got)
	}
	silent, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer silent.Close()
	target := mailTarget(t, "smtp+plain://"+silent.Addr().String(), "")
	target.Timeout = 200 * time.Millisecond
	if got := newSender(t, target).Send(t.Context(), messages()[0].m); got.Verdict != Later || strings.Contains(got.Answer, "127.0.0.1") {
		t.Errorf("%+v", got)
	}
}
