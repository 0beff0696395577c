//go:build linux

// Package hungfs mounts a file system that can stop answering, for tests. It behaves like a network mount whose server is down.
//
// It is a FUSE file system. Its server is another process of the test binary: see [Serve]. While the server does not answer a request, the requesting process
// is in uninterruptible sleep, as with NFS. The mount is removed when the test ends.
package hungfs

import (
	"bufio"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sys/unix"
)

// FS is a mounted file system.
type FS struct {
	// Dir is the mount point.
	Dir string

	t       testing.TB
	server  *exec.Cmd
	orders  io.Writer
	replies *bufio.Reader
}

const (
	folderVariable = "HUNGFS_FOLDER"
	device         = "/dev/fuse"
)

// New mounts a file system with executable files. programs maps the names of the files to their contents. The file system is unmounted when the test ends.
func New(t testing.TB, programs map[string]string) *FS {
	t.Helper()
	fd, err := unix.Open(device, unix.O_RDWR|unix.O_CLOEXEC, 0)
	if err != nil {
		t.Fatalf("%s: %v; this test needs root and the kernel's fuse module (modprobe fuse; for a container: --device /dev/fuse --cap-add SYS_ADMIN)", device, err)
	}
	f := &FS{Dir: t.TempDir(), t: t}
	source := t.TempDir()
	for name, text := range programs {
		if err := os.WriteFile(filepath.Join(source, name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	dev := os.NewFile(uintptr(fd), device)
	f.startServer(dev, source)
	err = unix.Mount("hungfs", f.Dir, "fuse", unix.MS_NOSUID|unix.MS_NODEV, fmt.Sprintf("fd=%d,rootmode=40000,user_id=0,group_id=0,allow_other", fd))
	dev.Close() // the server has its own copy of the descriptor
	t.Cleanup(f.stopServer)
	if err != nil {
		t.Fatalf("mount a FUSE file system: %v; this test needs root", err)
	}
	if _, err := os.Stat(f.Dir); err != nil { // this request waits for the server, which may take seconds to start on a busy machine
		t.Fatal(err)
	}
	return f
}

// startServer starts the server. The server exits when its stdin is closed.
func (f *FS) startServer(dev *os.File, source string) {
	f.t.Helper()
	f.server = exec.Command("/proc/self/exe")
	f.server.Env = append(os.Environ(), folderVariable+"="+source)
	f.server.ExtraFiles = []*os.File{dev}
	f.server.Stderr = os.Stderr
	in, err := f.server.StdinPipe()
	if err != nil {
		f.t.Fatal(err)
	}
	out, err := f.server.StdoutPipe()
	if err != nil {
		f.t.Fatal(err)
	}
	f.orders, f.replies = in, bufio.NewReader(out)
	if err := f.server.Start(); err != nil {
		f.t.Fatal(err)
	}
	f.t.Cleanup(func() { in.Close() })
}

// stopServer unmounts the file system, which makes all hanging requests fail.
func (f *FS) stopServer() {
	_ = unix.Unmount(f.Dir, unix.MNT_DETACH)
	_ = f.server.Process.Kill()
	_ = f.server.Wait()
}

// sendOrder sends an order to the server and waits until the server has carried it out.
func (f *FS) sendOrder(what string) error {
	if _, err := fmt.Fprintln(f.orders, what); err != nil {
		return fmt.Errorf("order the file system's server to %s: %w", what, err)
	}
	reply, err := f.replies.ReadString('\n')
	if err != nil {
		return fmt.Errorf("wait until the file system's server obeys %s: %w", what, err)
	}
	if strings.TrimSpace(reply) != what {
		return fmt.Errorf("the file system's server obeys %q instead of %s", reply, what)
	}
	return nil
}

func (f *FS) mustOrder(what string) {
	f.t.Helper()
	if err := f.sendOrder(what); err != nil {
		f.t.Fatal(err)
	}
}

// Hang makes the server stop answering all requests.
func (f *FS) Hang() { f.t.Helper(); f.mustOrder("hang") }

// HangOpen makes the server stop answering requests that open a file or check access to it. The server still answers lookups of names.
func (f *FS) HangOpen() { f.t.Helper(); f.mustOrder("open") }

// Answer makes the server answer all requests again, including the hanging ones. It may be called repeatedly. If a cleanup of the test waits for a process
// that may hang, register Answer as a cleanup after the start of that process, because cleanups run in reverse order.
func (f *FS) Answer() {
	f.t.Helper()
	if err := f.sendOrder("answer"); err != nil {
		f.t.Error(err)
	}
}
