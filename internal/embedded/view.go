package embedded

import (
	"net"
	"slices"
	"strings"

	"github.com/alicebob/miniredis/v2/server"
)

// A View gives clients read-only access to the data of a Server.
type View struct {
	Listener net.Listener
	// Reads has the commands, in upper case, that are allowed with any arguments. They must neither write nor block.
	Reads []string
	// Scripts has the texts of read-only scripts by their SHA-1. The view allows EVAL_RO and EVALSHA_RO only for these scripts, and executes them with
	// EVAL, because EVAL_RO of miniredis refuses TIME as a write.
	Scripts map[string]string
	// Hides reports whether an argument is a key whose value clients must not read. A nil Hides hides no keys.
	Hides func(key string) bool
	// Permits reports whether a command is allowed although it writes. The command is in upper case. A nil Permits allows none.
	Permits func(command string, args []string) bool
}

// onlyAView is the reply to a command that the view refuses. Clients treat it as a missing permission.
const onlyAView = "NOPERM this connection may look, and change nothing"

// IsRefusedByView reports whether err means that a view has refused a command.
func IsRefusedByView(err error) bool { return err != nil && strings.Contains(err.Error(), onlyAView) }

// ServeView serves v until Close, which also closes the listener of v.
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
	case cmd == "SELECT" && (len(args) != 1 || args[0] != "0"): // miniredis allocates memory for each selected database
		return nil
	case slices.Contains(v.Reads, cmd), v.Permits != nil && v.Permits(cmd, args):
		return append([]string{cmd}, args...)
	}
	return nil
}

// scriptCall returns an EVAL of a script in Scripts, or nil for any other script. EVAL could write, but these scripts do not.
func (v View) scriptCall(cmd string, args []string) []string {
	for sha, text := range v.Scripts {
		if len(args) > 0 && (cmd == "EVAL_RO" && args[0] == text || cmd == "EVALSHA_RO" && args[0] == sha) {
			return append([]string{"EVAL", text}, args[1:]...)
		}
	}
	return nil
}
