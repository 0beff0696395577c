// Command oci writes an image of cronclave for several platforms, from scratch and without an engine, as a tar of an OCI layout:
//
//	oci -version 1.2.3 -date SECONDS -license LICENSE -out FILE.oci.tar [-busybox DIR] linux/amd64=PROGRAM linux/arm64=PROGRAM
//
// The image has the program, the certificate authorities of Mozilla, and a user without rights. -busybox adds a shell: DIR has the static busybox_ARCH of each
// platform, and its copyright. The same programs give the same bytes. `docker load` reads the tar, too: it has NAME:VERSION-ARCH and
// NAME:VERSION-shell-ARCH.
package main

import (
	"archive/tar"
	"bytes"
	"encoding/json"
	"encoding/pem"
	"errors"
	"flag"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"
	"time"

	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/empty"
	"github.com/google/go-containerregistry/pkg/v1/layout"
	"github.com/google/go-containerregistry/pkg/v1/mutate"
	"github.com/google/go-containerregistry/pkg/v1/tarball"
	"github.com/google/go-containerregistry/pkg/v1/types"
	"golang.org/x/crypto/x509roots/fallback/bundle"
)

const (
	user = "65532:65532"
	// mostPacked is the size of an image in a registry, in bytes.
	mostPacked = 15_000_000
)

type options struct {
	name, tag, version, license, busybox string

	at time.Time
}

func main() {
	var o options
	date := flag.Int64("date", 0, "time of creation, in seconds since 1970")
	out := flag.String("out", "", "file to write")
	flag.StringVar(&o.name, "name", "cronclave", "name of the image")
	flag.StringVar(&o.version, "version", "dev", "version of the program")
	flag.StringVar(&o.license, "license", "LICENSE", "file of the licence")
	flag.StringVar(&o.busybox, "busybox", "", "folder of busybox_ARCH, for an image with a shell")
	flag.Parse()
	o.at = time.Unix(*date, 0).UTC()
	o.tag = o.version
	if o.busybox != "" {
		o.tag += "-shell"
	}
	if *out == "" || flag.NArg() == 0 {
		flag.Usage()
		os.Exit(2)
	}
	if err := write(*out, o, flag.Args()); err != nil {
		fmt.Fprintln(os.Stderr, "oci:", err)
		os.Exit(1)
	}
}

// write writes the image of all programs, each as PLATFORM=FILE, to the file out.
func write(out string, o options, programs []string) error {
	folder, err := os.MkdirTemp("", "oci")
	if err != nil {
		return err
	}
	defer os.RemoveAll(folder)
	index := mutate.IndexMediaType(empty.Index, types.OCIImageIndex)
	var loads []load
	for _, each := range programs {
		name, program, ok := strings.Cut(each, "=")
		platform, err := v1.ParsePlatform(name)
		if !ok || err != nil || platform.OS != "linux" {
			return fmt.Errorf("%q is not linux/ARCH=PROGRAM", each)
		}
		img, err := o.image(*platform, program)
		if err != nil {
			return fmt.Errorf("image of %s: %w", name, err)
		}
		l, err := o.describe(img, platform.Architecture)
		if err != nil {
			return fmt.Errorf("image of %s: %w", name, err)
		}
		loads = append(loads, l)
		index = mutate.AppendManifests(index, mutate.IndexAddendum{Add: img, Descriptor: v1.Descriptor{Platform: platform}})
	}
	to, err := layout.Write(folder, empty.Index)
	if err != nil {
		return err
	}
	err = to.AppendIndex(index, layout.WithAnnotations(map[string]string{
		"org.opencontainers.image.ref.name": o.tag, "io.containerd.image.name": "docker.io/library/" + o.name + ":" + o.tag,
	}))
	if err != nil {
		return err
	}
	manifest, err := json.Marshal(loads)
	if err != nil {
		return err
	}
	if err = os.WriteFile(filepath.Join(folder, "manifest.json"), manifest, 0o600); err != nil {
		return err
	}
	return pack(out, folder, o.at)
}

// A load is what `docker load` of engines without OCI layouts reads of one image.
type load struct {
	Config   string
	RepoTags []string
	Layers   []string
}

// describe returns the files of an image in the layout. It returns an error if the image is too large.
func (o options) describe(img v1.Image, arch string) (load, error) {
	m, err := img.Manifest()
	if err != nil {
		return load{}, err
	}
	blob := func(d v1.Descriptor) string { return path.Join("blobs", d.Digest.Algorithm, d.Digest.Hex) }
	l, size := load{Config: blob(m.Config), RepoTags: []string{o.name + ":" + o.tag + "-" + arch}}, m.Config.Size
	for _, layer := range m.Layers {
		l.Layers, size = append(l.Layers, blob(layer)), size+layer.Size
	}
	if size > mostPacked {
		return load{}, fmt.Errorf("%d bytes packed, and at most %d are allowed", size, mostPacked)
	}
	fmt.Printf("oci: %s, %d kB packed, user %s\n", l.RepoTags[0], size/1000, user)
	return l, nil
}

func (o options) image(platform v1.Platform, program string) (v1.Image, error) {
	files, err := o.files(platform.Architecture, program)
	if err != nil {
		return nil, err
	}
	layer, err := tarball.LayerFromOpener(func() (io.ReadCloser, error) { return io.NopCloser(bytes.NewReader(files)), nil },
		tarball.WithMediaType(types.OCILayer), tarball.WithCompressionLevel(9), tarball.WithCompressedCaching)
	if err != nil {
		return nil, err
	}
	created := v1.Time{Time: o.at}
	img := mutate.ConfigMediaType(mutate.MediaType(empty.Image, types.OCIManifestSchema1), types.OCIConfigJSON)
	img, err = mutate.Append(img, mutate.Addendum{Layer: layer, History: v1.History{Created: created, CreatedBy: "packaging/oci"}})
	if err != nil {
		return nil, err
	}
	cfg, err := img.ConfigFile()
	if err != nil {
		return nil, err
	}
	cfg = cfg.DeepCopy()
	cfg.OS, cfg.Architecture, cfg.Variant, cfg.Created = platform.OS, platform.Architecture, platform.Variant, created
	cfg.Config = v1.Config{
		User: user, Env: []string{"PATH=/usr/local/bin:/bin"}, StopSignal: "SIGTERM",
		Entrypoint: []string{"/usr/local/bin/cronclave"}, Cmd: []string{"run", "-c", "/etc/cronclave/jobs.toml"},
		Labels: map[string]string{
			"org.opencontainers.image.title": "cronclave", "org.opencontainers.image.description": "highly available cron over Redis",
			"org.opencontainers.image.source": "https://github.com/cronclave/cronclave", "org.opencontainers.image.licenses": "MIT",
			"org.opencontainers.image.version": o.version,
		},
	}
	return mutate.ConfigFile(img, cfg)
}

// files returns the tar of all files of an image.
func (o options) files(arch, program string) ([]byte, error) {
	text := func(s string) []byte { return []byte(s) }
	var tree tree
	tree.folder("etc/cronclave", 0o755)
	tree.folder("tmp", 0o1777)
	tree.file("etc/passwd", 0o644, text("root:x:0:0::/:/sbin/nologin\ncronclave:x:65532:65532::/tmp:/sbin/nologin\n"), nil)
	tree.file("etc/group", 0o644, text("root:x:0:\ncronclave:x:65532:\n"), nil)
	tree.file("etc/ssl/certs/ca-certificates.crt", 0o644, authorities(), nil)
	tree.copy("usr/local/bin/cronclave", 0o755, program)
	tree.copy("usr/share/cronclave/LICENSE", 0o644, o.license)
	if o.busybox != "" {
		data, err := os.ReadFile(filepath.Join(o.busybox, "busybox_"+arch))
		tree.file("bin/busybox", 0o755, data, err)
		tree.copy("usr/share/doc/busybox/copyright", 0o644, filepath.Join(o.busybox, "copyright"))
		names, err := applets(data)
		for _, name := range names {
			if name != "busybox" {
				tree.headers = append(tree.headers, tar.Header{Typeflag: tar.TypeSymlink, Name: "bin/" + name, Linkname: "busybox", Mode: 0o777})
			}
		}
		tree.err = errors.Join(tree.err, err)
	}
	return tree.tar(o.at)
}

// authorities returns the certificates that Mozilla trusts, in PEM. Those whose trust depends on the age of a certificate are left out, because a bundle
// cannot say so.
func authorities() []byte {
	var out bytes.Buffer
	for root := range bundle.Roots() {
		if root.Constraint == nil {
			_ = pem.Encode(&out, &pem.Block{Type: "CERTIFICATE", Bytes: root.Certificate}) // a buffer takes all
		}
	}
	return out.Bytes()
}

// applets returns the names of the programs in a busybox. It reads them from its table, since a busybox of another architecture cannot be run: a sorted list of
// names, each with a zero byte behind it.
func applets(busybox []byte) (names []string, err error) {
	_, table, ok := bytes.Cut(busybox, []byte("\x00[\x00[[\x00"))
	if !ok {
		return nil, errors.New("the busybox has no table of applets")
	}
	names = []string{"[", "[["}
	for {
		name, rest, ok := bytes.Cut(table, []byte{0})
		if !ok || string(name) <= names[len(names)-1] || len(name) > 30 {
			break
		}
		names, table = append(names, string(name)), rest
	}
	for _, name := range []string{"ash", "cat", "sh", "sleep", "wget"} {
		if !slices.Contains(names, name) {
			return nil, fmt.Errorf("the busybox has no %s among its %d applets", name, len(names))
		}
	}
	return names, nil
}

// A tree collects the files of an image, and the first error.
type tree struct {
	headers []tar.Header
	data    map[string][]byte
	err     error
}

func (t *tree) folder(name string, mode int64) {
	if name == "." {
		return
	}
	for _, h := range t.headers {
		if h.Name == name+"/" {
			return
		}
	}
	t.folder(path.Dir(name), 0o755)
	t.headers = append(t.headers, tar.Header{Typeflag: tar.TypeDir, Name: name + "/", Mode: mode})
}

func (t *tree) file(name string, mode int64, data []byte, err error) {
	t.err = errors.Join(t.err, err)
	t.folder(path.Dir(name), 0o755)
	t.headers = append(t.headers, tar.Header{Typeflag: tar.TypeReg, Name: name, Mode: mode, Size: int64(len(data))})
	if t.data == nil {
		t.data = map[string][]byte{}
	}
	t.data[name] = data
}

func (t *tree) copy(name string, mode int64, from string) {
	data, err := os.ReadFile(from)
	t.file(name, mode, data, err)
}

// tar returns the files in the order in which they were added, all of root and of one time.
func (t *tree) tar(at time.Time) ([]byte, error) {
	if t.err != nil {
		return nil, t.err
	}
	var out bytes.Buffer
	w := tar.NewWriter(&out)
	for _, h := range t.headers {
		h.ModTime, h.Format = at, tar.FormatUSTAR
		if err := w.WriteHeader(&h); err != nil {
			return nil, err
		}
		if _, err := w.Write(t.data[h.Name]); err != nil {
			return nil, err
		}
	}
	err := w.Close()
	return out.Bytes(), err
}

// pack writes a folder as a tar, without the times, owners and modes of its files.
func pack(out, folder string, at time.Time) error {
	var tree tree
	err := fs.WalkDir(os.DirFS(folder), ".", func(name string, entry fs.DirEntry, err error) error {
		if err == nil && !entry.IsDir() {
			tree.copy(name, 0o644, filepath.Join(folder, name))
		}
		return err
	})
	if err != nil {
		return err
	}
	data, err := tree.tar(at)
	if err != nil {
		return err
	}
	return os.WriteFile(out, data, 0o644)
}
