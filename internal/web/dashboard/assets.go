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

// assets are the static files. Each file name contains a hash of the content, so browsers may cache the file forever.
type assets struct {
	base   string            // prefix of all paths of the server
	named  map[string]string // from the plain name of a file to its name with the hash
	bodies map[string][]byte // content of the files by name with the hash
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

// fileURL returns the path of a file for browsers.
func (a *assets) fileURL(name string) (string, error) {
	hashed, ok := a.named[name]
	if !ok {
		return "", fmt.Errorf("no asset %q", name)
	}
	return a.base + "/assets/" + hashed, nil
}

// browserPath adds the base path to a path. A fragment stays as it is, because it refers to the same page.
func (a *assets) browserPath(path string) string {
	if strings.HasPrefix(path, "#") {
		return path
	}
	return a.base + path
}

// ServeHTTP serves a file. The path contains its name with the hash.
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
