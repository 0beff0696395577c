package main

import (
	"archive/tar"
	"bytes"
	"encoding/json"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/layout"
	"github.com/google/go-containerregistry/pkg/v1/mutate"
)

// fakeBusybox has a table of applets, as a busybox does, with other data around it.
const fakeBusybox = "\x7fELF...\x00[\x00[[\x00ash\x00busybox\x00cat\x00sh\x00sleep\x00wget\x00another text\x00"

// build writes an image of two platforms from files in a new folder, and returns the bytes of the image.
func build(t *testing.T, shell bool) []byte {
	t.Helper()
	folder := t.TempDir()
	for name, text := range map[string]string{"amd64": "program of amd64", "arm64": "program of arm64", "LICENSE": "a licence", "copyright": "GPL",
		"busybox_amd64": fakeBusybox, "busybox_arm64": fakeBusybox} {
		if err := os.WriteFile(filepath.Join(folder, name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	o := options{name: "cronclave", tag: "1.2.3", version: "1.2.3", license: filepath.Join(folder, "LICENSE"), at: time.Unix(1_700_000_000, 0).UTC()}
	if shell {
		o.busybox, o.tag = folder, "1.2.3-shell"
	}
	out := filepath.Join(folder, "image.oci.tar")
	if err := write(out, o, []string{"linux/amd64=" + filepath.Join(folder, "amd64"), "linux/arm64=" + filepath.Join(folder, "arm64")}); err != nil {
		t.Fatal(err)
	}
	data, err := os.ReadFile(out)
	if err != nil {
		t.Fatal(err)
	}
	return data
}

// unpack returns the files of a tar by name, and demands that all have the date of the image and belong to root.
func unpack(t *testing.T, from io.Reader) map[string]*tar.Header {
	t.Helper()
	files := map[string]*tar.Header{}
	for r := tar.NewReader(from); ; {
		h, err := r.Next()
		if err == io.EOF {
			return files
		}
		if err != nil {
			t.Fatal(err)
		}
		if h.ModTime.Unix() != 1_700_000_000 || h.Uid != 0 || h.Gid != 0 || h.Uname != "" {
			t.Errorf("%s: of %v, user %d %q", h.Name, h.ModTime, h.Uid, h.Uname)
		}
		files[strings.TrimSuffix(h.Name, "/")] = h
	}
}

// open returns the images of a layout by architecture, and the folder with the layout.
func open(t *testing.T, data []byte) (images map[string]v1.Image, folder string) {
	t.Helper()
	folder = t.TempDir()
	unpack(t, bytes.NewReader(data))
	for r := tar.NewReader(bytes.NewReader(data)); ; {
		h, err := r.Next()
		if err == io.EOF {
			break
		}
		name := filepath.Join(folder, h.Name)
		if h.Typeflag == tar.TypeDir {
			err = os.MkdirAll(name, 0o700)
		} else {
			var text []byte
			if text, err = io.ReadAll(r); err == nil {
				err = os.WriteFile(name, text, 0o600)
			}
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	index, err := layout.ImageIndexFromPath(folder)
	if err != nil {
		t.Fatal(err)
	}
	outer, err := index.IndexManifest()
	if err != nil || len(outer.Manifests) != 1 {
		t.Fatalf("the layout: %v, %v", outer, err)
	}
	inner, err := index.ImageIndex(outer.Manifests[0].Digest)
	if err != nil {
		t.Fatal(err)
	}
	manifest, err := inner.IndexManifest()
	if err != nil {
		t.Fatal(err)
	}
	images = map[string]v1.Image{}
	for _, d := range manifest.Manifests {
		if images[d.Platform.Architecture], err = inner.Image(d.Digest); err != nil {
			t.Fatal(err)
		}
	}
	return images, folder
}

func TestImage(t *testing.T) {
	for _, shell := range []bool{false, true} {
		data := build(t, shell)
		if !bytes.Equal(data, build(t, shell)) {
			t.Error("the same programs in another folder give another image")
		}
		images, folder := open(t, data)
		if len(images) != 2 {
			t.Fatalf("the platforms: %v", images)
		}
		for arch, img := range images {
			cfg, err := img.ConfigFile()
			if err != nil {
				t.Fatal(err)
			}
			if cfg.Architecture != arch || cfg.OS != "linux" || cfg.Config.User != "65532:65532" || cfg.Created.Unix() != 1_700_000_000 ||
				!slices.Equal(cfg.Config.Entrypoint, []string{"/usr/local/bin/cronclave"}) || cfg.Config.Labels["org.opencontainers.image.version"] != "1.2.3" {
				t.Errorf("%s: %+v", arch, cfg)
			}
			root := mutate.Extract(img)
			files := unpack(t, root)
			_ = root.Close()
			for name, mode := range map[string]int64{"usr/local/bin/cronclave": 0o755, "etc/ssl/certs/ca-certificates.crt": 0o644, "etc/passwd": 0o644, "usr/share/cronclave/LICENSE": 0o644} {
				if h := files[name]; h == nil || h.Mode != mode {
					t.Errorf("%s: %s is %+v", arch, name, h)
				}
			}
			if h := files["tmp"]; h == nil || h.Mode != 0o1777 {
				t.Errorf("%s: /tmp is %+v", arch, h)
			}
			if h := files["usr/local/bin/cronclave"]; h != nil && h.Size != int64(len("program of "+arch)) {
				t.Errorf("%s has another program", arch)
			}
			if h := files["bin/sh"]; shell != (h != nil && h.Linkname == "busybox") || shell != (files["usr/share/doc/busybox/copyright"] != nil) {
				t.Errorf("%s: shell %v, and /bin/sh is %+v", arch, shell, h)
			}
			if files["bin/another text"] != nil {
				t.Error("text behind the table of applets became a program")
			}
		}
		var loads []load
		text, err := os.ReadFile(filepath.Join(folder, "manifest.json"))
		if err != nil {
			t.Fatal(err)
		}
		if err := json.Unmarshal(text, &loads); err != nil || len(loads) != 2 || !strings.HasPrefix(loads[0].RepoTags[0], "cronclave:1.2.3-") {
			t.Fatalf("%s: %v", text, err)
		}
		for _, l := range loads {
			for _, name := range append(l.Layers, l.Config) {
				if _, err := os.Stat(filepath.Join(folder, name)); err != nil {
					t.Error(err)
				}
			}
		}
	}
}

func TestImageIsRefused(t *testing.T) {
	large := filepath.Join(t.TempDir(), "large")
	noise := make([]byte, mostPacked+1)
	state := uint32(1)
	for i := range noise { // a generator whose bytes cannot be packed
		state ^= state << 13
		state ^= state >> 17
		state ^= state << 5
		noise[i] = byte(state)
	}
	if err := os.WriteFile(large, noise, 0o600); err != nil {
		t.Fatal(err)
	}
	for program, want := range map[string]string{"linux/amd64=" + large: "bytes packed", "darwin/arm64=" + large: "is not linux/ARCH=PROGRAM", "linux/amd64=/missing": "no such file"} {
		err := write(filepath.Join(t.TempDir(), "out"), options{name: "x", license: os.DevNull}, []string{program})
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v", program, err)
		}
	}
	if names, err := applets([]byte("no table")); err == nil {
		t.Errorf("%q", names)
	}
}
