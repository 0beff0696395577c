//go:build race

package scheduler_test

// raceDetector tells that everything takes ten times as long.
const raceDetector = true
