//go:build browser

package browser

import (
	"context"
	"slices"
	"strings"
	"testing"

	"github.com/chromedp/cdproto/accessibility"
	"github.com/chromedp/cdproto/cdp"
	"github.com/chromedp/chromedp"
)

// soundPages looks at every kind of page at both widths, without JavaScript, so that they stay as they are: nothing scrolls sideways, each control has a
// name, and the Tab key leads through all of them in the order of the page.
func soundPages(t *testing.T, browser context.Context, c *cluster, skipped string) {
	for _, width := range []int64{1280, 390} {
		b := newTab(t, browser, c.urls["r3"], width)
		b.scripts(true)
		for _, path := range []string{"/", "/?outcome=late", "/jobs/nightly-backup", "/jobs/rebuild-index", "/jobs/invoices", "/jobs/nightly-backup/why?at=" + skipped, "/timeline", "/timeline?by=job&span=10m",
			"/cluster", "/audit", "/calendar", "/pause", "/resume", "/jobs/none"} {
			b.open(path)
			b.shows("Log out")
			b.fits()
			b.controlsHaveNames(8)
			b.tabOrder()
		}
		b.open("/jobs/import-orders")
		b.click("td a", "failed")
		b.shows("import-orders failed", "cannot reach the shop")
		b.fits()
		b.controlsHaveNames(8)
		b.tabOrder()
		b.open("/login")
		b.shows("Token", "Log in")
		b.fits()
		b.controlsHaveNames(2)
		if at, err := ask[string](b, "document.activeElement.id"); err != nil || at != "token" { // its Tab order is looked at where a person can also sign in
			t.Errorf("the page begins at %q, %v", at, err)
		}
	}
}

// fits demands that the page does not scroll sideways.
func (b *tab) fits() {
	b.t.Helper()
	sizes, err := ask[[]int](b, "[document.documentElement.scrollWidth, innerWidth]")
	must(b.t, err)
	if sizes[0] > sizes[1] {
		wide, _ := ask[string](b, `[...document.querySelectorAll('body *')].filter((e) => e.getBoundingClientRect().right > innerWidth && !e.closest('.scroll')).map((e) => e.tagName + '.' + e.className).slice(0, 5).join(' ')`)
		b.t.Errorf("%s is %d pixels wide in a window of %d: %s", b.path(), sizes[0], sizes[1], wide)
	}
}

// named are the roles of elements that a user acts on.
var named = []string{"button", "link", "textbox", "searchbox", "combobox", "checkbox", "DisclosureTriangle", "table", "region", "form", "navigation", "image", "img"}

// controlsHaveNames demands an accessible name of each control, table and region, as Chromium computes it, and a least number of them.
func (b *tab) controlsHaveNames(least int) {
	b.t.Helper()
	tree, err := chromedp.Run(b.ctx, func(ctx context.Context, t *chromedp.Target) (accessibility.GetFullAXTreeResult, error) {
		return cdp.Call(ctx, t, accessibility.GetFullAXTree, accessibility.GetFullAXTreeParams{})
	})
	must(b.t, err)
	controls := 0
	for _, n := range tree.Nodes {
		if n.Ignored || n.Role == nil || !slices.Contains(named, strings.Trim(string(n.Role.Value), `"`)) {
			continue
		}
		controls++
		if role := string(n.Role.Value); role != `"table"` && (n.Name == nil || strings.Trim(string(n.Name.Value), `" `) == "") {
			b.t.Errorf("%s: %s without a name", b.path(), role)
		}
	}
	if controls < least {
		b.t.Errorf("%s: %d controls: the test looks at the wrong roles", b.path(), controls)
	}
}

// focusable are the elements that the Tab key should reach, in the order of the page.
const focusable = `[...document.querySelectorAll('a[href], button, input, select, textarea, summary, [tabindex]')].filter((e) =>
  !e.disabled && e.type !== 'hidden' && e.tabIndex >= 0 && e.getClientRects().length && e.checkVisibility({ visibilityProperty: true }))`

// tabOrder demands that the Tab key leads to each control once, in the order of the page, and that each shows that it has the focus.
func (b *tab) tabOrder() {
	b.t.Helper()
	count, err := ask[int](b, focusable+".length")
	must(b.t, err)
	count = min(count, 60) // more are alike: rows of a table, marks of a strip
	_, err = ask[bool](b, "document.activeElement.blur() || true")
	must(b.t, err)
	for want := range count {
		b.do(chromedp.KeyEvent("\t"))
		got, err := ask[[]int](b, `(() => { const e = document.activeElement, style = getComputedStyle(e), box = e.getBoundingClientRect();
			return [`+focusable+`.indexOf(e), style.outlineStyle !== 'none' || style.boxShadow !== 'none' ? 1 : 0, box.width && box.height ? 1 : 0]; })()`)
		must(b.t, err)
		if got[0] != want || got[1] == 0 || got[2] == 0 {
			what, _ := ask[string](b, "document.activeElement.outerHTML.slice(0, 200)")
			b.t.Errorf("%s: Tab %d leads to control %d, of %d; outline %d, size %d: %s", b.path(), want, got[0], count, got[1], got[2], what)
			return
		}
	}
}
