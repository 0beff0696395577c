// Command manpages writes a man page for each command of a program that prints its help as cobra does:
//
//	manpages -dir DIR -date SECONDS PROGRAM
//
// It reads only what the program prints, so the program needs no library for man pages.
package main

import (
	"bytes"
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"time"
)

func main() {
	dir := flag.String("dir", ".", "folder of the pages")
	date := flag.Int64("date", 0, "date of the pages, in seconds since 1970")
	flag.Parse()
	if err := writePages(*dir, time.Unix(*date, 0).UTC(), flag.Args()); err != nil {
		fmt.Fprintln(os.Stderr, "manpages:", err)
		os.Exit(1)
	}
}

// writePages writes the page of a command, and the pages of the commands below it. The first argument is the program.
func writePages(dir string, date time.Time, command []string) error {
	if len(command) == 0 {
		return errors.New("name the program")
	}
	text, err := helpText(command)
	if err != nil {
		return err
	}
	h := parseHelp(text)
	name := append([]string{filepath.Base(command[0])}, command[1:]...)
	name[0], _, _ = strings.Cut(name[0], "_") // cronclave_linux_amd64
	page := strings.Join(name, "-")
	if err := os.WriteFile(filepath.Join(dir, page+".1"), h.format(page, date), 0o644); err != nil {
		return fmt.Errorf("write the page of %s: %w", page, err)
	}
	for _, below := range h.commands() {
		if below == "help" {
			continue
		}
		if err := writePages(dir, date, append(command[:len(command):len(command)], below)); err != nil {
			return err
		}
	}
	return nil
}

func helpText(command []string) (string, error) {
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	out, err := exec.CommandContext(ctx, command[0], append(command[1:len(command):len(command)], "--help")...).Output()
	if err != nil {
		return "", fmt.Errorf("%s --help: %w", strings.Join(command, " "), err)
	}
	return string(out), nil
}

// help is the help text of a command, in sections.
type help struct {
	about    string
	titles   []string
	sections map[string][]string // lines by title
}

var title = regexp.MustCompile(`^([A-Z][A-Za-z ]+):$`)

// parseHelp cuts a help text into sections. The text before the usage is the description, with all titles in it.
func parseHelp(text string) help {
	h := help{sections: map[string][]string{}}
	about, rest, _ := strings.Cut(text, "\nUsage:\n")
	h.about = strings.TrimSpace(about)
	current := ""
	for line := range strings.Lines("Usage:\n" + rest) {
		line = strings.TrimRight(line, "\n")
		switch m := title.FindStringSubmatch(line); {
		case m != nil:
			current = m[1]
			h.titles = append(h.titles, current)
		case strings.HasPrefix(line, "Use \""): // the hint at the end
		case line != "":
			h.sections[current] = append(h.sections[current], line)
		}
	}
	return h
}

func (h help) commands() []string {
	var names []string
	for _, line := range h.sections["Available Commands"] {
		names = append(names, strings.Fields(line)[0])
	}
	return names
}

// entry is a line of a list: a name, or a flag with its type, and what it does.
var entry = regexp.MustCompile(`^\s+(\S.*?)\s{2,}(\S.*)$`)

func (h help) format(page string, date time.Time) []byte {
	var b bytes.Buffer
	short, _, _ := strings.Cut(h.about, "\n")
	short, _, _ = strings.Cut(strings.TrimPrefix(short, page+" is "), ". ")
	fmt.Fprintf(&b, ".TH %s 1 %s \"\" \"User Commands\"\n", `"`+escape(strings.ToUpper(page))+`"`, date.Format(time.DateOnly))
	fmt.Fprintf(&b, ".SH NAME\n%s \\- %s\n.SH SYNOPSIS\n", escape(page), escape(short))
	writeLiteral(&b, h.sections["Usage"])
	b.WriteString(".SH DESCRIPTION\n")
	writeLiteral(&b, strings.Split(h.about, "\n"))
	for _, t := range h.titles {
		lines := h.sections[t]
		switch t {
		case "Usage":
		case "Examples":
			b.WriteString(".SH EXAMPLES\n")
			writeLiteral(&b, lines)
		default:
			fmt.Fprintf(&b, ".SH %s\n", escape(strings.ToUpper(t)))
			writeList(&b, lines)
		}
	}
	b.WriteString(".SH SEE ALSO\n")
	if page != "cronclave" {
		b.WriteString(".BR cronclave (1),\n")
	}
	b.WriteString("https://github.com/cronclave/cronclave\n")
	return b.Bytes()
}

// writeLiteral writes lines that are not filled.
func writeLiteral(b *bytes.Buffer, lines []string) {
	b.WriteString(".nf\n")
	for _, line := range lines {
		b.WriteString(escape(line) + "\n")
	}
	b.WriteString(".fi\n")
}

func writeList(b *bytes.Buffer, lines []string) {
	for _, line := range lines {
		if m := entry.FindStringSubmatch(line); m != nil {
			fmt.Fprintf(b, ".TP\n.B %s\n%s\n", escape(m[1]), escape(m[2]))
			continue
		}
		b.WriteString(escape(strings.TrimSpace(line)) + "\n")
	}
}

// escape keeps roff from reading a text as requests.
func escape(s string) string {
	s = strings.NewReplacer(`\`, `\e`, `-`, `\-`, `"`, `\(dq`).Replace(s)
	if strings.HasPrefix(s, ".") || strings.HasPrefix(s, "'") {
		s = `\&` + s
	}
	return s
}
