//go:build !linux

package starter
