//go:build !linux

package main

import "testing"

func killChild(t *testing.T, _ int) {
	t.Helper()
	t.Skip("looks into /proc")
}
