package embedded

import (
	"net"
	"slices"
	"strings"

	"github.com/alicebob/miniredis/v2/server"
)

// A View serves the data of a Server to clients that may read it and not change it.
type View struct {
	Listener net.Listener
	// Reads are the commands, in upper case, that are allowed with any arguments. They must not write and not block.
	Reads []string
	// Scripts are the texts of scripts that write nothing, by their SHA-1. EVAL_RO and EVALSHA_RO execute only these: miniredis takes TIME for a command that
	// writes, and so refuses every script that reads the clock.
	Scripts map[string]string
	// Hides reports whether an argument is a key whose value is not shown; nil hides none.
	Hides func(key string) bool
	// Permits reports whether a command is allowed although it writes. The command is in upper case. A nil Permits allows none.
	Permits func(command string, args []string) bool
}

// onlyAView is the reply to a command that writes. Clients recognize it as a missing permission.
const onlyAView = "NOPERM this connection may look, and change nothing"

// IsRefusedByView reports whether err is the refusal of a command by a view.
func IsRefusedByView(err error) bool { return err != nil && strings.Contains(err.Error(), onlyAView) }

// ServeView serves v until Close, which closes its listener.
func (s *Server) ServeView(v View) {
	peers := server.NewServerConn()
	peers.SetPreHook(func(p *server.Peer, cmd string, args ...string) (done bool) {
		if words := v.allowedCommand(cmd, args); words != nil {
			s.peers.Dispatch(p, words)
		} else {
			p.WriteError(onlyAView)
		}
		return true
	})
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		_ = v.Listener.Close() // nothing was served
		return
	}
	s.openDoor(door{v.Listener, peers})
}

// allowedCommand returns the words to execute for a command, or nil if the view refuses it.
func (v View) allowedCommand(cmd string, args []string) []string {
	switch {
	case v.Hides != nil && slices.ContainsFunc(args, v.Hides):
		return nil
	case cmd == "EVAL_RO" || cmd == "EVALSHA_RO":
		return v.scriptCall(cmd, args)
	case cmd == "SELECT" && (len(args) != 1 || args[0] != "0"): // each database that is selected costs memory
		return nil
	case slices.Contains(v.Reads, cmd), v.Permits != nil && v.Permits(cmd, args):
		return append([]string{cmd}, args...)
	}
	return nil
}

// scriptCall returns the call of a known script by its text. EVAL may write, but the known scripts do not.
func (v View) scriptCall(cmd string, args []string) []string {
	for sha, text := range v.Scripts {
		if len(args) > 0 && (cmd == "EVAL_RO" && args[0] == text || cmd == "EVALSHA_RO" && args[0] == sha) {
			return append([]string{"EVAL", text}, args[1:]...)
		}
	}
	return nil
}
