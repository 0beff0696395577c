// Standin takes the place of cronclave in the tests of the harness: `run` logs a line of JSON with its settings, then
// one for each SIGHUP, and ends with 0 on SIGTERM.
package main

import (
	"encoding/json"
	"os"
	"os/signal"
	"strings"
	"syscall"
)

func main() {
	signals := make(chan os.Signal, 1)
	signal.Notify(signals, syscall.SIGTERM, syscall.SIGHUP)
	log := json.NewEncoder(os.Stderr)
	say := func(message string) {
		_ = log.Encode(map[string]any{ // a stand-in whose log cannot be written is noticed by the test
			"msg":   message,
			"args":  strings.Join(os.Args[1:], " "),
			"redis": os.Getenv("CRONCLAVE_REDIS"),
			"token": int64(1764590402000311),
		})
	}
	say("up")
	for s := range signals {
		if s == syscall.SIGTERM {
			say("down")
			return
		}
		say("still here")
	}
}
