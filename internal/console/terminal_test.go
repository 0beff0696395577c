package console

import (
	"bytes"
	"encoding/json"
	"io"
	"testing"
)

func TestTerminalQuotesWhatIsNoText(t *testing.T) {
	for text, want := range map[string]string{
		"plain\ttext\nüñí 漢字 👩‍🚀\n": "plain\ttext\nüñí 漢字 👩‍🚀\n",
		"\x1b]0;title\a":                        `\u001b]0;title\u0007`,
		"\x1b[2J\x1b[H":                         `\u001b[2J\u001b[H`,
		"\x1b[1;31mred\x1b[0m\x1b[m":            "\x1b[1;31mred\x1b[0m\x1b[m",
		"\x1b[8mconcealed\x1b[30mblack\x1b[41m": `\u001b[8mconcealed\u001b[30mblack\u001b[41m`,
		"\x1b[38;5;0m":                          `\u001b[38;5;0m`,
		"over\rwritten, ended\r\n":              "over\\u000dwritten, ended\r\n",
		"\u009b31m\x7f\x00\b":                   `\u009b31m\u007f\u0000\u0008`,
		"\x9b31m\xff":                           `\x9b31m\xff`,
		"user\u202e\u2066\u200f\u2028":          `user\u202e\u2066\u200f\u2028`,
	} {
		var out bytes.Buffer
		terminal := &Output{file: &out, terminal: true}
		if n, err := io.WriteString(terminal, text); n != len(text) || err != nil {
			t.Errorf("%q: %d, %v", text, n, err)
		}
		if out.String() != want {
			t.Errorf("%q: %q, want %q", text, &out, want)
		}
	}
}

// A character may come in parts.
func TestTerminalJoinsCharacters(t *testing.T) {
	var out bytes.Buffer
	terminal := &Output{file: &out, terminal: true}
	for _, b := range []byte("漢\x1b") {
		if _, err := terminal.Write([]byte{b}); err != nil {
			t.Fatal(err)
		}
	}
	if want := "漢" + `\u001b`; out.String() != want {
		t.Errorf("%q, want %q", &out, want)
	}
}

// The beginning of a character, which nothing completes, is written at the end, as the bytes that it is.
func TestTerminalEndsWithinACharacter(t *testing.T) {
	var out bytes.Buffer
	terminal := &Output{file: &out, terminal: true}
	if _, err := io.WriteString(terminal, "漢\xe6\xbc"); err != nil || out.String() != "漢" {
		t.Errorf("before the end: %q, %v", &out, err)
	}
	for range 2 {
		if err := Finish(terminal); err != nil || out.String() != `漢\xe6\xbc` {
			t.Errorf("at the end: %q, %v", &out, err)
		}
	}
}

func TestTerminalKeepsJSON(t *testing.T) {
	const text = "\x1b[2J \u009b \u202e \x00 \xff ok"
	var out bytes.Buffer
	if err := json.NewEncoder(&Output{file: &out, terminal: true}).Encode(text); err != nil {
		t.Fatal(err)
	}
	var back string
	if err := json.Unmarshal(out.Bytes(), &back); err != nil || back != "\x1b[2J \u009b \u202e \x00 \ufffd ok" || bytes.ContainsAny(out.Bytes(), "\x1b\u009b\u202e") {
		t.Errorf("%q, %v", &out, err)
	}
}
