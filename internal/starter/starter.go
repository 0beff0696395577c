// Package starter implements a small process that starts one command for a replica.
//
// A start can hang: an execve of a program on a network mount whose server is down does not return, and can't be interrupted. The Go runtime forks under a lock
// that it holds until the program is executed, so one hanging start would block all other starts of the process. Therefore the replica executes its own binary
// as a starter. Executing this binary does not hang, because it is already in use. The starter forks the command, replies with its PID or the error, and exits.
// A hanging start blocks only its own starter.
//
// The starter calls [Main] before the other packages of the binary are initialised, because a starter lives only for milliseconds.
package starter

import (
	"encoding/binary"
	"errors"
	"strconv"
	"strings"
	"syscall"
)

// Name is argv[0] of a starter. A starter has no other argument.
const Name = "cronclave-starter"

// The file descriptors of a starter, besides the stdin, stdout and stderr of the command.
const (
	// Channel is the socket for the order and the reply. When the replica closes its end of the socket, the starter exits.
	Channel = 3
	// Cgroup is the directory of the command's cgroup, if Order.InCgroup is set.
	Cgroup = 4
)

// Order describes a command to start.
type Order struct {
	Path, Dir  string
	Argv, Env  []string
	Credential *syscall.Credential // user and groups; nil means the replica's own
	Umask      *uint32             // file mode creation mask; nil means the replica's own
	Nice       *int                // scheduling priority; nil means the replica's own
	InCgroup   bool                // whether the command starts in the cgroup of the descriptor Cgroup
	// DropInheritable clears the ambient and the inheritable capabilities.
	DropInheritable bool
	NoNewPrivs      bool
}

// Step is a step of a start that can fail.
type Step uint32

// The steps of a start.
const (
	Start Step = iota // fork, working directory, user, or execve
	Nice
	Privileges
)

// Reply is the result of a start.
type Reply struct {
	PID   int           // PID of the command; 0 if it was not started
	Step  Step          // the step that failed
	Error syscall.Errno // the error of that step
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

// Bytes encodes an order as its length and its fields. Each field is encoded as its length and its bytes.
func (o *Order) Bytes() []byte {
	fields := []string{o.Path, o.Dir, flagText(o.InCgroup), flagText(o.DropInheritable), flagText(o.NoNewPrivs), "", "", formatCredential(o.Credential),
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

// parseOrder decodes an order without the leading length.
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

func flagText(set bool) string {
	if set {
		return "1"
	}
	return ""
}

// formatCredential encodes a credential as "UID GID KEEP GROUP ...". KEEP is 1 if the supplementary groups stay unchanged, otherwise 0.
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
