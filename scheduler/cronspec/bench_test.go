package cronspec

import (
	"testing"
	"time"
)

func benchmarkCases() []struct{ name, expr, zone string } {
	return []struct{ name, expr, zone string }{
		{"second/UTC", "* * * * * *", "UTC"},
		{"second/Berlin", "* * * * * *", "Europe/Berlin"},
		{"minute/UTC", "* * * * *", "UTC"},
		{"minute/Berlin", "* * * * *", "Europe/Berlin"},
		{"every/UTC", "@every 30s", "UTC"},
		{"daily/UTC", "0 3 * * *", "UTC"},
		{"daily/Berlin", "0 3 * * *", "Europe/Berlin"},
		{"yearly/Berlin", "59 59 23 31 12 *", "Europe/Berlin"},
		{"leap/Berlin", "0 0 29 2 *", "Europe/Berlin"},
		{"leapSunday/Berlin", "* 0 29 2 */7", "Europe/Berlin"},
	}
}

func BenchmarkNext(b *testing.B) {
	for _, c := range benchmarkCases() {
		b.Run(c.name, func(b *testing.B) {
			s := mustParse(b, c.zone, c.expr)
			start := time.Date(2026, 6, 1, 12, 0, 0, 0, time.UTC)
			b.ReportAllocs()
			at := start
			for b.Loop() {
				if at = s.Next(at); at.Year() > 2030 {
					at = start
				}
			}
		})
	}
}

func BenchmarkPrev(b *testing.B) {
	for _, c := range benchmarkCases() {
		b.Run(c.name, func(b *testing.B) {
			s := mustParse(b, c.zone, c.expr)
			start := time.Date(2026, 6, 1, 12, 0, 0, 0, time.UTC)
			b.ReportAllocs()
			for b.Loop() {
				s.Prev(start)
			}
		})
	}
}

func BenchmarkParse(b *testing.B) {
	for _, c := range benchmarkCases() {
		b.Run(c.name, func(b *testing.B) {
			zone, err := LoadLocation(c.zone)
			if err != nil {
				b.Fatal(err)
			}
			b.ReportAllocs()
			for b.Loop() {
				if _, err := Parse([]string{c.expr}, Options{Location: zone}); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}
