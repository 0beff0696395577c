package notify

import (
	"cmp"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"net/mail"
	"net/textproto"
	"strconv"
	"strings"

	gomail "github.com/wneessen/go-mail"
)

const mostOfMail = 100_000

// composeMail returns the mail about a message. Its id is the same in each attempt, so that a receiver can recognize a repetition.
func composeMail(c *call, m Message) (*gomail.Msg, error) {
	t := renderText(c.target, m)
	from, err := mail.ParseAddress(c.target.From)
	if err != nil {
		return nil, errors.New("from is no mail address") // not reached: the configuration was validated
	}
	_, domain, _ := strings.Cut(from.Address, "@")
	body := t.body(plainText, mostOfMail) + "\n"
	if t.link != "" {
		body += "\n" + t.link + "\n"
	}
	msg := gomail.NewMsg(gomail.WithNoDefaultUserAgent())
	if err := errors.Join(msg.From(c.target.From), msg.To(c.target.To...)); err != nil {
		return nil, errors.New("from or to has a wrong mail address") // the error itself may contain values from the environment
	}
	msg.Subject(plainText.fit(t.title, mostOfATitle))
	msg.SetDateWithValue(c.now)
	msg.SetMessageIDWithValue(messageID(m) + "@" + domain)
	msg.SetGenHeader("Auto-Submitted", "auto-generated")
	msg.SetGenHeader("User-Agent", c.agent)
	msg.SetBodyString(gomail.TypeTextPlain, body)
	return msg, nil
}

// sendMail sends a message to all recipients at once. If the server refuses one of them, none gets it.
func sendMail(ctx context.Context, c *call, m Message) Result {
	msg, err := composeMail(c, m)
	if err != nil {
		return Result{Verdict: Never, Answer: err.Error()}
	}
	client, err := newMailClient(ctx, c)
	if err != nil {
		return Result{Verdict: Later, Answer: err.Error()}
	}
	err = client.DialAndSendWithContext(ctx, msg)
	if err == nil || msg.IsDelivered() { // the end of the session may fail after the server has taken the mail
		return Result{Answer: "250 accepted by the mail server"}
	}
	return c.judgeMail(err)
}

func newMailClient(ctx context.Context, c *call) (*gomail.Client, error) {
	port := cmp.Or(c.url.Port(), map[string]string{"smtps": "465", "smtp": "587", "smtp+plain": "25"}[c.url.Scheme])
	number, err := strconv.Atoi(port)
	if err != nil {
		return nil, errors.New("the port of the URL is wrong")
	}
	cfg := &tls.Config{ServerName: c.url.Hostname(), RootCAs: c.authorities, MinVersion: tls.VersionTLS12}
	// With implicit TLS and a dial function, go-mail would take the connection for unprotected, and send no password. With the opportunistic policy it looks at
	// the connection.
	policy := map[string]gomail.TLSPolicy{"smtps": gomail.TLSOpportunistic, "smtp": gomail.TLSMandatory, "smtp+plain": gomail.NoTLS}[c.url.Scheme]
	options := []gomail.Option{gomail.WithPort(number), gomail.WithTLSPolicy(policy), gomail.WithTLSConfig(cfg), gomail.WithTimeout(c.target.Timeout),
		gomail.WithDialContextFunc(func(_ context.Context, network, addr string) (net.Conn, error) { // go-mail's own context ends when the connection is there
			return c.dialMail(ctx, cfg, network, addr)
		})}
	if user := c.url.User.Username(); user != "" {
		password, _ := c.url.User.Password()
		options = append(options, gomail.WithSMTPAuth(gomail.SMTPAuthAutoDiscover), gomail.WithUsername(user), gomail.WithPassword(cmp.Or(c.token, password)))
	}
	client, err := gomail.NewClient(c.url.Hostname(), options...)
	if err != nil {
		return nil, errors.New("the mail client cannot be created")
	}
	return client, nil
}

// dialMail connects to a mail server. The connection is closed when ctx ends, because go-mail checks its context only while it connects.
func (c *call) dialMail(ctx context.Context, cfg *tls.Config, network, addr string) (net.Conn, error) {
	conn, err := c.dial(ctx, network, addr)
	if err != nil {
		return nil, err
	}
	closing := &closedWith{Conn: conn, stop: context.AfterFunc(ctx, func() { _ = conn.Close() })}
	if c.url.Scheme != "smtps" {
		return closing, nil
	}
	secure := tls.Client(closing, cfg)
	if err := secure.HandshakeContext(ctx); err != nil {
		return nil, errors.Join(err, closing.Close())
	}
	return secure, nil
}

// closedWith is a connection that a context closes.
type closedWith struct {
	net.Conn
	stop func() bool
}

func (c *closedWith) Close() error {
	c.stop()
	return c.Conn.Close()
}

// judgeMail returns the result of a failed attempt.
func (c *call) judgeMail(err error) Result {
	const (
		refused    = 500 // and above
		noAuth     = 530
		wrongLogin = 535
	)
	var answer *textproto.Error
	var failed *gomail.SendError
	code, status := 0, ""
	switch {
	case errors.As(err, &answer):
		code = answer.Code
		status = c.describe(strconv.Itoa(code), answer.Msg)
	case errors.As(err, &failed): // does not wrap the server's answer
		code = failed.ErrorCode()
		status = fmt.Sprintf("%s (%v)", strings.TrimSpace(fmt.Sprint(code, " ", failed.EnhancedStatusCode())), failed.Reason)
	}
	switch {
	case code >= refused:
		return Result{Verdict: Never, Gone: code == noAuth || code == wrongLogin, Answer: status}
	case code > 0:
		return Result{Verdict: Later, Answer: status}
	case failed != nil && failed.Reason == gomail.ErrSMTPDataClose: // after the last byte of the mail
		return Result{Verdict: Unknown, Answer: "no answer after the mail was sent: " + failureReason(err)}
	case errors.Is(err, gomail.ErrNoSupportedAuthDiscovered):
		return Result{Verdict: Never, Answer: "the mail server offers no login, or none without TLS"}
	case strings.Contains(err.Error(), "does not support STARTTLS"):
		return Result{Verdict: Never, Answer: "the mail server does not offer STARTTLS; use smtps://, or smtp+plain:// in a trusted network"}
	}
	return Result{Verdict: Later, Answer: "no answer: " + failureReason(err)}
}
