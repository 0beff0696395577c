package dashboard

import (
	"crypto/sha256"
	"embed"
	"fmt"
	"mime"
	"net/http"
	"path"
	"strings"
)

//go:embed assets
var assetFiles embed.FS

// assets are the files beside the pages. The name of each has a hash of its content, so browsers may keep it for ever.
type assets struct {
	base   string            // the path before all that the server has
	named  map[string]string // from the name of a file to that with its hash
	bodies map[string][]byte // by the latter
}

func readAssets(base string) (*assets, error) {
	a := &assets{base, map[string]string{}, map[string][]byte{}}
	entries, err := assetFiles.ReadDir("assets")
	if err != nil {
		return nil, err
	}
	for _, e := range entries {
		body, err := assetFiles.ReadFile("assets/" + e.Name())
		if err != nil {
			return nil, err
		}
		ext := path.Ext(e.Name())
		hashed := fmt.Sprintf("%s-%.12x%s", strings.TrimSuffix(e.Name(), ext), sha256.Sum256(body), ext)
		a.named[e.Name()], a.bodies[hashed] = hashed, body
	}
	return a, nil
}

// url is where a file is.
func (a *assets) url(name string) (string, error) {
	hashed, ok := a.named[name]
	if !ok {
		return "", fmt.Errorf("no asset %q", name)
	}
	return a.base + "/assets/" + hashed, nil
}

// link is where a path leads in browsers. A fragment leads within the page.
func (a *assets) link(path string) string {
	if strings.HasPrefix(path, "#") {
		return path
	}
	return a.base + path
}

// ServeHTTP serves a file by its name with the hash.
func (a *assets) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	name := r.PathValue("name")
	body, ok := a.bodies[name]
	if !ok {
		http.NotFound(w, r)
		return
	}
	w.Header().Set("Content-Type", mime.TypeByExtension(path.Ext(name)))
	w.Header().Set("Cache-Control", "public, max-age=31536000, immutable")
	_, _ = w.Write(body)
}
