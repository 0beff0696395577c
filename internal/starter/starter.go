// Package starter is a small process that stands between a replica and each command that it starts.
//
// A start can hang: execve of a program on a network mount whose server is away does not return, and cannot be interrupted. The Go runtime forks under one lock
// and holds it until the program was executed, so one such start would stop every other start of the process. The replica therefore executes its own binary, which
// is open already, as a starter. The starter forks the command, reports its process id or the error, and ends. A start that hangs stops its own starter alone.
//
// The starter becomes a [Main] before the other packages of the binary are initialised, since it lives for milliseconds.
package starter

import (
	"encoding/binary"
	"errors"
	"strconv"
	"strings"
	"syscall"
)

// Name is the only argument of a starter, argv[0].
const Name = "cronclave-starter"

// The files of a starter, beside the stdin, stdout and stderr of the command.
const (
	// Channel is the socket by which the order comes, and by which the reply goes. The starter ends when its other end is closed.
	Channel = 3
	// Cgroup is the directory of the command's cgroup, if the order has one.
	Cgroup = 4
)

// Order is a command to start.
type Order struct {
	Path, Dir  string
	Argv, Env  []string
	Credential *syscall.Credential // nil: the replica's own
	Umask      *uint32             // nil: the replica's own
	Nice       *int                // nil: the replica's own
	InCgroup   bool                // the command is born in Cgroup
	// DropInheritable clears the ambient and the inheritable capabilities.
	DropInheritable bool
	NoNewPrivs      bool
}

// Step is the part of a start that failed.
type Step uint32

// The steps.
const (
	Start Step = iota // the fork, the folder, the user, or the execution
	Nice
	Privileges
	Received // the order could not be read
)

// Reply is the result of a start.
type Reply struct {
	PID   int           // of the command; 0 if it was not started
	Step  Step          // that failed
	Error syscall.Errno // why
}

// ReplySize is the length of a reply in bytes.
const ReplySize = 12

// Bytes encodes a reply.
func (r Reply) Bytes() []byte {
	b := binary.LittleEndian.AppendUint32(nil, uint32(r.PID))
	b = binary.LittleEndian.AppendUint32(b, uint32(r.Step))
	return binary.LittleEndian.AppendUint32(b, uint32(r.Error))
}

// ParseReply decodes a reply of [ReplySize] bytes.
func ParseReply(b []byte) Reply {
	word := func(i int) uint32 { return binary.LittleEndian.Uint32(b[4*i:]) }
	return Reply{int(word(0)), Step(word(1)), syscall.Errno(word(2))}
}

// Bytes encodes an order: its length, and its fields as strings, each after its own length.
func (o *Order) Bytes() []byte {
	fields := []string{o.Path, o.Dir, flag(o.InCgroup), flag(o.DropInheritable), flag(o.NoNewPrivs), "", "", formatCredential(o.Credential),
		strconv.Itoa(len(o.Argv))}
	if o.Umask != nil {
		fields[5] = strconv.FormatUint(uint64(*o.Umask), 10)
	}
	if o.Nice != nil {
		fields[6] = strconv.Itoa(*o.Nice)
	}
	fields = append(append(fields, o.Argv...), o.Env...)
	b := make([]byte, 4)
	for _, f := range fields {
		b = append(binary.LittleEndian.AppendUint32(b, uint32(len(f))), f...)
	}
	binary.LittleEndian.PutUint32(b, uint32(len(b)-4))
	return b
}

var errOrder = errors.New("damaged order")

// parseOrder decodes an order without its length.
func parseOrder(b []byte) (*Order, error) {
	var fields []string
	for len(b) > 0 {
		if len(b) < 4 || uint64(len(b)-4) < uint64(binary.LittleEndian.Uint32(b)) {
			return nil, errOrder
		}
		n := int(binary.LittleEndian.Uint32(b))
		fields, b = append(fields, string(b[4:4+n])), b[4+n:]
	}
	const fixed = 9
	if len(fields) < fixed {
		return nil, errOrder
	}
	args, err := strconv.Atoi(fields[8])
	if err != nil || args < 0 || args > len(fields)-fixed {
		return nil, errOrder
	}
	o := &Order{Path: fields[0], Dir: fields[1], InCgroup: fields[2] != "", DropInheritable: fields[3] != "", NoNewPrivs: fields[4] != "",
		Argv: fields[fixed : fixed+args], Env: fields[fixed+args:]}
	if n, err := strconv.ParseUint(fields[5], 10, 32); err == nil {
		mask := uint32(n)
		o.Umask = &mask
	}
	if n, err := strconv.Atoi(fields[6]); err == nil {
		o.Nice = &n
	}
	o.Credential, err = parseCredential(fields[7])
	return o, err
}

func flag(set bool) string {
	if set {
		return "1"
	}
	return ""
}

// formatCredential writes "UID GID KEEP GROUP ...", where KEEP leaves the supplementary groups alone.
func formatCredential(c *syscall.Credential) string {
	if c == nil {
		return ""
	}
	numbers := []uint32{c.Uid, c.Gid, 0}
	if c.NoSetGroups {
		numbers[2] = 1
	}
	var text []string
	for _, n := range append(numbers, c.Groups...) {
		text = append(text, strconv.FormatUint(uint64(n), 10))
	}
	return strings.Join(text, " ")
}

func parseCredential(text string) (*syscall.Credential, error) {
	if text == "" {
		return nil, nil
	}
	var numbers []uint32
	for _, f := range strings.Fields(text) {
		n, err := strconv.ParseUint(f, 10, 32)
		if err != nil {
			return nil, errOrder
		}
		numbers = append(numbers, uint32(n))
	}
	if len(numbers) < 3 {
		return nil, errOrder
	}
	return &syscall.Credential{Uid: numbers[0], Gid: numbers[1], NoSetGroups: numbers[2] != 0, Groups: numbers[3:]}, nil
}
