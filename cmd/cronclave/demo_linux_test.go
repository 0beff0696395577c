package main

import (
	"syscall"
	"testing"
)

// killChild kills a replica of a demo, which has no other children.
func killChild(t *testing.T, demo int) {
	t.Helper()
	children := childrenOf(demo)
	if len(children) != demoReplicas {
		t.Fatalf("the demo has the children %v", children)
	}
	if err := syscall.Kill(children[0], syscall.SIGKILL); err != nil {
		t.Fatal(err)
	}
}
