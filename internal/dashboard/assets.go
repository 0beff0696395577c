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

// assets are the static files. Their names contain a hash of the content, so browsers may cache them forever.
type assets struct {
	base   string            // path before all paths of the server
	named  map[string]string // from the name of a file to its name with the hash
	bodies map[string][]byte // by name with the hash
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

// fileURL returns the URL of a file.
func (a *assets) fileURL(name string) (string, error) {
	hashed, ok := a.named[name]
	if !ok {
		return "", fmt.Errorf("no asset %q", name)
	}
	return a.base + "/assets/" + hashed, nil
}

// browserPath returns a path as browsers need it. A fragment stays within the page.
func (a *assets) browserPath(path string) string {
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
