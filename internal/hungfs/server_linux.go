package hungfs

import (
	"bufio"
	"encoding/binary"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"

	"golang.org/x/sys/unix"
)

// The FUSE operations that the server handles, from /usr/include/linux/fuse.h.
const (
	opLookup      = 1
	opForget      = 2
	opGetattr     = 3
	opOpen        = 14
	opRead        = 15
	opRelease     = 18
	opFlush       = 25
	opInit        = 26
	opOpendir     = 27
	opReaddir     = 28
	opReleasedir  = 29
	opAccess      = 34
	opInterrupt   = 36
	opBatchForget = 42

	inHeader = 40
	root     = 1
)

var order = binary.LittleEndian

// request is a request of the kernel. unique is its id.
type request struct {
	op           uint32
	unique, node uint64
	body         []byte
}

// Serve serves a file system and returns true if this process was started as a server. Otherwise it returns false. If a package uses [New], its TestMain must
// call Serve first.
func Serve() bool {
	folder := os.Getenv(folderVariable)
	if folder == "" {
		return false
	}
	if err := runServer(folder); err != nil {
		fmt.Fprintln(os.Stderr, "hungfs:", err)
	}
	return true
}

type file struct {
	name string
	text []byte
}

// server is the state of the server. Only the goroutine of runServer uses it, so it needs no mutex: orders and requests come through channels.
type server struct {
	files   []file // the node of files[i] is root+1+i
	hangs   func(op uint32) bool
	waiting []request
}

func runServer(folder string) error {
	entries, err := os.ReadDir(folder)
	if err != nil {
		return err
	}
	s := &server{hangs: func(uint32) bool { return false }}
	for _, e := range entries {
		text, err := os.ReadFile(filepath.Join(folder, e.Name()))
		if err != nil {
			return err
		}
		s.files = append(s.files, file{e.Name(), text})
	}
	orders, requests := make(chan string), make(chan request)
	go func() {
		defer close(orders)
		for lines := bufio.NewScanner(os.Stdin); lines.Scan(); {
			orders <- lines.Text()
		}
	}()
	go receiveRequests(requests)
	for {
		select {
		case what, ok := <-orders:
			if !ok {
				return nil
			}
			s.obeyOrder(what)
			fmt.Println(what) //nolint:forbidigo // the pipe to the test
		case r := <-requests:
			if s.hangs(r.op) {
				s.waiting = append(s.waiting, r)
			} else {
				s.answerRequest(r)
			}
		}
	}
}

func (s *server) obeyOrder(what string) {
	switch what {
	case "hang":
		s.hangs = func(op uint32) bool { return true }
	case "open":
		s.hangs = func(op uint32) bool { return op == opOpen || op == opAccess }
	case "answer":
		s.hangs = func(uint32) bool { return false }
		for _, r := range s.waiting {
			s.answerRequest(r)
		}
		s.waiting = nil
	}
}

// receiveRequests reads requests from the kernel until the file system is unmounted.
func receiveRequests(requests chan<- request) {
	const device = 3
	buffer := make([]byte, 1<<20)
	for {
		n, err := unix.Read(device, buffer)
		switch {
		case errors.Is(err, unix.ENODEV):
			return
		case err != nil, n < inHeader: // EPERM means that the file system is not mounted yet
			if !errors.Is(err, unix.EPERM) {
				continue
			}
			_, _ = unix.Poll([]unix.PollFd{{Fd: device, Events: unix.POLLIN}}, 10)
			continue
		}
		requests <- request{order.Uint32(buffer[4:]), order.Uint64(buffer[8:]), order.Uint64(buffer[16:]), slices.Clone(buffer[inHeader:n])}
	}
}

func (s *server) answerRequest(r request) {
	var body []byte
	var fault unix.Errno
	switch r.op {
	case opForget, opBatchForget, opInterrupt: // the kernel expects no answer
		return
	case opInit:
		body = initReply(r.body)
	case opLookup:
		name := string(r.body[:max(slices.Index(r.body, 0), 0)])
		i := slices.IndexFunc(s.files, func(f file) bool { return f.name == name })
		if i < 0 {
			fault = unix.ENOENT
			break
		}
		node := uint64(root + 1 + i)
		body = order.AppendUint64(nil, node)
		body = append(append(body, make([]byte, 32)...), s.fuseAttr(node)...)
	case opGetattr:
		body = append(make([]byte, 16), s.fuseAttr(r.node)...)
	case opOpen, opOpendir:
		body = make([]byte, 16)
	case opRead:
		text := s.files[r.node-root-1].text
		from := min(order.Uint64(r.body[8:]), uint64(len(text)))
		body = text[from:min(from+uint64(order.Uint32(r.body[16:])), uint64(len(text)))]
	case opReaddir, opRelease, opReleasedir, opFlush, opAccess:
	default:
		fault = unix.ENOSYS
	}
	writeReply(r.unique, fault, body)
}

func initReply(in []byte) []byte {
	out := make([]byte, 64)
	order.PutUint32(out, 7)
	order.PutUint32(out[4:], min(order.Uint32(in[4:]), 31))
	order.PutUint32(out[20:], 1<<17) // the maximum length of a write
	return out
}

// fuseAttr returns a struct fuse_attr of the kernel.
func (s *server) fuseAttr(node uint64) []byte {
	b := make([]byte, 88)
	order.PutUint64(b, node)
	order.PutUint32(b[60:], unix.S_IFDIR|0o755)
	order.PutUint32(b[64:], 1)
	if node != root {
		order.PutUint64(b[8:], uint64(len(s.files[node-root-1].text)))
		order.PutUint32(b[60:], unix.S_IFREG|0o755)
	}
	return b
}

func writeReply(unique uint64, fault unix.Errno, body []byte) {
	const device = 3
	b := order.AppendUint32(nil, uint32(16+len(body)))
	b = order.AppendUint32(b, uint32(-int32(fault)))
	b = order.AppendUint64(b, unique)
	_, _ = unix.Write(device, append(b, body...)) // ENOENT means that the request was interrupted
}
