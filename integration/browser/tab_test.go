//go:build browser

package browser

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/chromedp/cdproto/cdp"
	"github.com/chromedp/cdproto/emulation"
	"github.com/chromedp/chromedp"
)

// tab is a tab of a browser, which it drives by mouse and keyboard.
type tab struct {
	t      *testing.T
	ctx    context.Context
	base   string
	clicks int
}

// newBrowser starts Chromium. Tabs are made of the context that it returns.
func newBrowser(t *testing.T) context.Context {
	t.Helper()
	options := append(chromedp.DefaultExecAllocatorOptions[:], chromedp.NoSandbox) // Chromium has no sandbox for root
	for _, name := range []string{"chromium", "chromium-browser", "google-chrome"} {
		if path, err := exec.LookPath(name); err == nil {
			options = append(options, chromedp.ExecPath(path))
			break
		}
	}
	ctx, stop := chromedp.NewExecAllocator(context.Background(), options...)
	t.Cleanup(stop)
	ctx, end := chromedp.NewContext(ctx)
	t.Cleanup(end)
	if err := chromedp.Do(ctx, chromedp.Navigate("about:blank")); err != nil {
		t.Fatalf("start Chromium (apt-get install chromium fonts-dejavu-core): %v", err)
	}
	return ctx
}

// newTab opens a tab of a width, which is logged in at a replica if it has been.
func newTab(t *testing.T, browser context.Context, base string, width int64) *tab {
	t.Helper()
	ctx, end := chromedp.NewContext(browser)
	t.Cleanup(end)
	b := &tab{t: t, ctx: ctx, base: base}
	b.do(chromedp.EmulateViewport(width, 844))
	return b
}

func (b *tab) do(steps ...chromedp.Action[chromedp.Void]) {
	b.t.Helper()
	ctx, cancel := context.WithTimeout(b.ctx, patience)
	defer cancel()
	if err := chromedp.Do(b.ctx); err != nil { // a tab lives as long as the context of its first action
		b.t.Fatal(err)
	}
	if err := chromedp.Do(ctx, steps...); err != nil {
		b.t.Fatal(err)
	}
}

// scripts turns JavaScript on or off, from the next page on.
func (b *tab) scripts(off bool) {
	b.do(chromedp.Func(func(ctx context.Context, t *chromedp.Target) error {
		_, err := cdp.Call(ctx, t, emulation.SetScriptExecutionDisabled, emulation.SetScriptExecutionDisabledParams{Value: off})
		return err
	}))
}

// open goes to a page, and begins to count clicks.
func (b *tab) open(path string) {
	b.t.Helper()
	b.do(chromedp.Navigate(b.base + path))
	b.clicks = 0
}

// ask evaluates an expression. It fails while another page is being loaded.
func ask[T any](b *tab, expression string) (T, error) {
	ctx, cancel := context.WithTimeout(b.ctx, 5*time.Second)
	defer cancel()
	return chromedp.Run(ctx, chromedp.Evaluate[T](expression))
}

// text is the visible text of the page, with single spaces.
func (b *tab) text() string {
	text, err := ask[string](b, "document.body ? document.body.innerText : ''")
	if err != nil {
		return ""
	}
	return strings.Join(strings.Fields(text), " ")
}

// shows waits until the page shows all texts, in which r%s is any replica.
func (b *tab) shows(texts ...string) {
	b.t.Helper()
	for end := time.Now().Add(20 * time.Second); ; time.Sleep(20 * time.Millisecond) {
		shown := b.text()
		i := slices.IndexFunc(texts, func(text string) bool { return !matches(shown, text) })
		if i < 0 {
			return
		}
		if time.Now().After(end) {
			b.t.Fatalf("%s does not show %q:\n%s", b.path(), texts[i], shown)
		}
	}
}

func (b *tab) path() string {
	path, _ := ask[string](b, "location.pathname + location.search")
	return path
}

// find is a function that returns the place of the first visible element of a selector whose text, or name, is or begins with a text, once it is in view.
// Something that covers it gets the click, as from a mouse.
const find = `((selector, text) => {
  const words = (e) => (e.getAttribute('aria-label') || e.innerText || e.textContent).replace(/\s+/g, ' ').trim();
  const all = [...document.querySelectorAll(selector)].filter((e) => e.getClientRects().length && e.checkVisibility({ visibilityProperty: true }));
  const e = all.find((e) => words(e) === text) || all.find((e) => words(e).startsWith(text));
  if (!e) return [];
  e.scrollIntoView({ block: 'center' });
  const box = e.getClientRects()[0];
  return [box.left + box.width / 2, box.top + box.height / 2];
})(%s, %s)`

// click clicks the link, button or other element with a text, and counts that.
func (b *tab) click(selector, text string) {
	b.t.Helper()
	js := func(s string) string { quoted, _ := json.Marshal(s); return string(quoted) }
	var place []float64
	eventually(b.t, fmt.Sprintf("%s %q on %s", selector, text, b.path()), 20*time.Second, func() bool {
		var err error
		place, err = ask[[]float64](b, fmt.Sprintf(find, js(selector), js(text)))
		return err == nil && len(place) == 2
	})
	b.do(chromedp.MouseClickXY(place[0], place[1]))
	b.clicks++
}

// fill types into a field.
func (b *tab) fill(id, text string) {
	b.t.Helper()
	b.do(chromedp.Focus(chromedp.ID(id)), chromedp.SendKeys(chromedp.ID(id), text))
}

// logIn sends the token by the form to which the first page leads.
func (b *tab) logIn() {
	b.t.Helper()
	b.open("/")
	b.shows("Token")
	b.fill("token", token)
	b.click("button", "Log in")
	b.shows("ann", "Log out")
}

// shoot saves a picture of the page, if CRONCLAVE_SHOTS names a folder for them.
func (b *tab) shoot(name string, width, height int64, dark bool) {
	b.t.Helper()
	dir := os.Getenv("CRONCLAVE_SHOTS")
	if dir == "" {
		return
	}
	scheme := map[bool]string{false: "light", true: "dark"}[dark]
	size := chromedp.EmulateViewport(width, height)
	if width < 600 {
		size = chromedp.EmulateViewport(width, height, chromedp.EmulateMobile)
	}
	b.do(size, chromedp.Func(func(ctx context.Context, t *chromedp.Target) error {
		_, err := cdp.Call(ctx, t, emulation.SetEmulatedMedia, emulation.SetEmulatedMediaParams{Features: []*emulation.MediaFeature{{Name: "prefers-color-scheme", Value: scheme}}})
		return err
	}), chromedp.Reload())
	ctx, cancel := context.WithTimeout(b.ctx, patience)
	defer cancel()
	picture, err := chromedp.Run(ctx, chromedp.CaptureScreenshot())
	must(b.t, err)
	must(b.t, os.WriteFile(filepath.Join(dir, name+".png"), picture, 0o644))
}
