package main

import (
	"bytes"
	"context"
	"io"
	"slices"
	"testing"
)

func TestRatiosAreOfTheSameRound(t *testing.T) {
	got := ratios([]float64{10, 40, 90}, []float64{20, 40, 0})
	if want := []float64{0.5, 1}; !slices.Equal(got, want) {
		t.Errorf("ratios %v, want %v", got, want)
	}
}

func TestMedian(t *testing.T) {
	all := []float64{5, 1, 3}
	if got := median(all); got != 3 {
		t.Errorf("median %v, want 3", got)
	}
	if !slices.Equal(all, []float64{5, 1, 3}) {
		t.Errorf("the values were reordered: %v", all)
	}
	if got := median[float64](nil); got != 0 {
		t.Errorf("median of none %v, want 0", got)
	}
}

func TestTable(t *testing.T) {
	var out bytes.Buffer
	if err := table(&out, [][]string{{"", "rate"}, {"raw", "1"}, {"longer", "23"}}); err != nil {
		t.Fatal(err)
	}
	if want := "          rate\n  raw        1\n  longer    23\n"; out.String() != want {
		t.Errorf("table:\n%s\nwant:\n%s", out.String(), want)
	}
}

func TestCommandLineIsChecked(t *testing.T) {
	good := options{scenarios: "a", rounds: 1, round: 1, leases: 1, hold: 1, out: io.Discard}
	for name, spoil := range map[string]func(*options){
		"unknown scenario":   func(o *options) { o.scenarios = "ax" },
		"no rounds":          func(o *options) { o.rounds = 0 },
		"unknown contenders": func(o *options) { o.only = "nobody" },
	} {
		o := good
		spoil(&o)
		if err := run(context.Background(), o); err == nil {
			t.Errorf("%s: no error", name)
		}
	}
}
