package dashboard

import (
	"fmt"
	"math"
	"regexp"
	"strconv"
	"testing"
)

// leastContrast is that of WCAG 2.2 for text (1.4.3, level AA).
const leastContrast = 4.5

// token is a colour of the style sheet in both themes.
var token = regexp.MustCompile(`--([a-z0-9-]+): light-dark\(#([0-9a-f]{6}), #([0-9a-f]{6})\);`)

// TestContrast computes the contrast of all pairs of colours in which the style sheet has text.
func TestContrast(t *testing.T) {
	t.Parallel()
	css, err := assetFiles.ReadFile("assets/style.css")
	if err != nil {
		t.Fatal(err)
	}
	grounds := []string{"bg", "surface", "raised"}
	pairs := [][2]string{{"text", "bad-soft"}, {"muted", "bad-soft"}, {"text", "warn-soft"}, {"muted", "warn-soft"}, {"text", "ok-soft"}, {"on-fill", "accent"}, {"on-fill", "heat-4"},
		{"text", "heat-1"}, {"text", "heat-2"}, {"text", "heat-3"}, {"on-fill", "ok"}, {"on-fill", "bad"}, {"on-fill", "warn"}, {"on-fill", "off"}}
	for _, ground := range grounds {
		for _, ink := range []string{"text", "muted", "accent", "run", "off"} {
			pairs = append(pairs, [2]string{ink, ground})
		}
	}
	for _, ink := range []string{"ok", "bad", "warn"} { // of the signs in drawings, and of warnings in rows
		pairs = append(pairs, [2]string{ink, "raised"}, [2]string{ink, "surface"}, [2]string{ink, "bg"})
	}
	wantContrast(t, string(css), pairs)
}

// wantContrast demands that pairs of colours of a style sheet can be read, in both themes, and that it has no colours but those.
func wantContrast(t *testing.T, css string, pairs [][2]string) {
	t.Helper()
	themes := [2]map[string]string{{}, {}}
	for _, m := range token.FindAllStringSubmatch(css, -1) {
		themes[0][m[1]], themes[1][m[1]] = m[2], m[3]
	}
	for theme, colours := range themes {
		for _, p := range pairs {
			if c := contrast(colours[p[0]], colours[p[1]]); !(c >= leastContrast) {
				t.Errorf("%s on %s is %.2f in the %s theme", p[0], p[1], c, []string{"light", "dark"}[theme])
			}
		}
	}
	for _, m := range regexp.MustCompile(`#[0-9a-f]{3,8}\b`).FindAllStringIndex(token.ReplaceAllString(css, ""), -1) {
		t.Errorf("a colour that is no token, at byte %d", m[0])
	}
}

// contrast is the ratio that WCAG defines; NaN for a colour that is not there.
func contrast(a, b string) float64 {
	l, m := luminance(a), luminance(b)
	return (math.Max(l, m) + .05) / (math.Min(l, m) + .05)
}

func luminance(hex string) float64 {
	n, err := strconv.ParseUint(hex, 16, 32)
	if err != nil {
		return math.NaN()
	}
	channel := func(shift int) float64 {
		c := float64(n>>shift&0xff) / 255
		if c <= .04045 {
			return c / 12.92
		}
		return math.Pow((c+.055)/1.055, 2.4)
	}
	return .2126*channel(16) + .7152*channel(8) + .0722*channel(0)
}

// TestEveryMarkHasAShape: marks differ by more than their colours, and the style sheet knows all of them.
func TestEveryMarkHasAShape(t *testing.T) {
	t.Parallel()
	css, err := assetFiles.ReadFile("assets/style.css")
	if err != nil {
		t.Fatal(err)
	}
	signs := map[string]bool{}
	for _, m := range []mark{markOK, markBad, markWarning, markRunning, markNotRun, markAdvice, markComing} {
		if signs[m.Sign] {
			t.Errorf("two marks have the sign %s", m.Sign)
		}
		signs[m.Sign] = true
		if !regexp.MustCompile(fmt.Sprintf(`\.m\.%s\b`, m.Class)).Match(css) {
			t.Errorf("the style sheet has no mark %s", m.Class)
		}
	}
}

// TestScriptMakesNoMarkup: the script puts names and output on pages as text, and runs nothing that it has read.
func TestScriptMakesNoMarkup(t *testing.T) {
	t.Parallel()
	js, err := assetFiles.ReadFile("assets/app.js")
	if err != nil {
		t.Fatal(err)
	}
	if found := regexp.MustCompile(`(?i)innerHTML|outerHTML|insertAdjacentHTML|document\.write|\beval\b|new Function|\.style\b|https?://`).FindAll(js, -1); found != nil {
		t.Errorf("%q", found)
	}
}
