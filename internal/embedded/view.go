package embedded

import (
	"net"
	"slices"
	"strings"

	"github.com/alicebob/miniredis/v2/server"
)

// View is a way to the data of a Server by which clients look and change nothing.
type View struct {
	Listener net.Listener
	// Reads are the commands, in upper case, that are done with any arguments. They must not write and not block.
	Reads []string
	// Scripts are the texts of scripts that write nothing. EVAL_RO and EVALSHA_RO execute these alone, by their SHA-1: miniredis refuses
	// every script that reads the clock, since it takes TIME for a command that writes.
	Scripts map[string]string
	// Hides returns whether an argument is a key whose value is not shown; nil hides none.
	Hides func(key string) bool
	// Permits returns whether a command that writes, in upper case, is done all the same; nil permits none.
	Permits func(command string, args []string) bool
}

// onlyAView is the reply to a command that writes; clients take it for a missing right.
const onlyAView = "NOPERM this connection may look, and change nothing"

// IsRefusedByView returns whether an error is the refusal of a command by a view.
func IsRefusedByView(err error) bool { return err != nil && strings.Contains(err.Error(), onlyAView) }

// ServeView serves v until Close, which closes its listener.
func (s *Server) ServeView(v View) {
	peers := server.NewServerConn()
	peers.SetPreHook(func(p *server.Peer, cmd string, args ...string) (done bool) {
		if words := v.permitted(cmd, args); words != nil {
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
	s.open(door{v.Listener, peers})
}

// permitted are the words with which a command is done, nil if it is not.
func (v View) permitted(cmd string, args []string) []string {
	switch {
	case v.Hides != nil && slices.ContainsFunc(args, v.Hides):
		return nil
	case cmd == "EVAL_RO" || cmd == "EVALSHA_RO":
		return v.script(cmd, args)
	case cmd == "SELECT" && (len(args) != 1 || args[0] != "0"): // each database that is named costs memory
		return nil
	case slices.Contains(v.Reads, cmd), v.Permits != nil && v.Permits(cmd, args):
		return append([]string{cmd}, args...)
	}
	return nil
}

// script is the call of a script by its text. That it may write is no danger: it is one of ours.
func (v View) script(cmd string, args []string) []string {
	for sha, text := range v.Scripts {
		if len(args) > 0 && (cmd == "EVAL_RO" && args[0] == text || cmd == "EVALSHA_RO" && args[0] == sha) {
			return append([]string{"EVAL", text}, args[1:]...)
		}
	}
	return nil
}
