package code

import (
	"archive/tar"
	"bytes"
	"errors"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"tensorturn/domain"
)

// folder makes files below a new folder; a value "->x" is a link to x.
func folder(t testing.TB, files map[string]string) string {
	t.Helper()
	dir := t.TempDir()
	for name, text := range files {
		path := filepath.Join(dir, name)
		if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
			t.Fatal(err)
		}
		var err error
		if to, ok := strings.CutPrefix(text, "->"); ok {
			err = os.Symlink(to, path)
		} else {
			err = os.WriteFile(path, []byte(text), 0o600)
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	return dir
}

// content reads a folder back.
func content(t testing.TB, dir string) map[string]string {
	t.Helper()
	got := map[string]string{}
	err := filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		b, err := os.ReadFile(path)
		rel, _ := filepath.Rel(dir, path)
		got[rel] = string(b)
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return got
}

func unpacked(t testing.TB, archive []byte) (map[string]string, error) {
	t.Helper()
	dir := t.TempDir()
	root, err := os.OpenRoot(dir)
	if err != nil {
		t.Fatal(err)
	}
	defer root.Close()
	err = Unpack(bytes.NewReader(archive), root)
	return content(t, dir), err
}

func TestWhatIsPacked(t *testing.T) {
	tests := []struct {
		name  string
		files map[string]string
		want  map[string]string
	}{
		{"all without an ignore file", map[string]string{"train.py": "x", "lib/a.py": "y", "empty": ""}, map[string]string{"train.py": "x", "lib/a.py": "y", "empty": ""}},
		{"never caches", map[string]string{"train.py": "x", "__pycache__/a.pyc": "y", ".venv/z": "z", "lib/.git/config": "s"}, map[string]string{"train.py": "x"}},
		{"what git ignores", map[string]string{".gitignore": "*.pt\ndata/\n", "train.py": "x", "a.pt": "y", "data/b": "z", "lib/.gitignore": "secret\n", "lib/secret": "s", "lib/a": "a"},
			map[string]string{".gitignore": "*.pt\ndata/\n", "train.py": "x", "lib/.gitignore": "secret\n", "lib/a": "a"}},
		{"a link within", map[string]string{"train.py": "x", "again.py": "->train.py"}, map[string]string{"train.py": "x", "again.py": "x"}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			dir := folder(t, tt.files)
			var first, second bytes.Buffer
			f, err := Pack(t.Context(), dir, &first)
			if err != nil {
				t.Fatal(err)
			}
			if _, err := Pack(t.Context(), dir, &second); err != nil || !bytes.Equal(first.Bytes(), second.Bytes()) {
				t.Errorf("the same folder gives other bytes: %v", err)
			}
			got, err := unpacked(t, first.Bytes())
			if err != nil {
				t.Fatal(err)
			}
			if d := cmp.Diff(tt.want, got); d != "" || f.Files != len(tt.want) {
				t.Errorf("%d files\n%s", f.Files, d)
			}
		})
	}
}

// In a repository the ignore files above the folder count, and files that are not yet committed are packed.
func TestPackWithinARepository(t *testing.T) {
	dir := folder(t, map[string]string{".gitignore": "*.bin\n", "app/train.py": "x", "app/big.bin": "y", "other.py": "z"})
	if out, err := exec.Command("git", "-C", dir, "init", "-q").CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	var out bytes.Buffer
	if _, err := Pack(t.Context(), filepath.Join(dir, "app"), &out); err != nil {
		t.Fatal(err)
	}
	got, err := unpacked(t, out.Bytes())
	if err != nil {
		t.Fatal(err)
	}
	if d := cmp.Diff(map[string]string{"train.py": "x"}, got); d != "" {
		t.Error(d)
	}
}

func TestPackRefuses(t *testing.T) {
	many := map[string]string{}
	for i := range MaxFiles + 1 {
		many["f"+strings.Repeat("x", i%7)+string(rune('a'+i%26))+filepath.Join("", strings.Repeat("y", i/26%20))+"-"+strings.Repeat("z", i/520)] = ""
	}
	tests := []struct {
		name  string
		files map[string]string
		why   string
	}{
		{"a link that leads outside", map[string]string{"a": "->/etc/passwd"}, `"a" cannot be read`},
		{"a link upwards", map[string]string{"lib/a": "->../../x"}, `"lib/a" cannot be read`},
		{"a link to a folder", map[string]string{"lib/a": "x", "b": "->lib"}, `"b" is no plain file`},
		{"nothing", map[string]string{}, "no file to pack"},
		{"a name that Windows cannot have", map[string]string{"a:b": "x"}, "not every machine"},
		{"too deep", map[string]string{strings.Repeat("d/", MaxDepth) + "a": "x"}, "deeper than"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			_, err := Pack(t.Context(), folder(t, tt.files), new(bytes.Buffer))
			if domain.KindOf(err) != domain.KindInvalid || !strings.Contains(err.Error(), tt.why) || domain.NextOf(err) == "" {
				t.Errorf("%v, next: %s", err, domain.NextOf(err))
			}
		})
	}
	t.Run("too many files", func(t *testing.T) {
		_, err := Pack(t.Context(), folder(t, many), new(bytes.Buffer))
		if len(many) > MaxFiles && (err == nil || !strings.Contains(err.Error(), "at most")) {
			t.Errorf("%d files: %v", len(many), err)
		}
	})
	t.Run("too large", func(t *testing.T) {
		dir := folder(t, map[string]string{"a": "x"})
		if err := os.Truncate(filepath.Join(dir, "a"), MaxBytes+1); err != nil {
			t.Fatal(err)
		}
		if _, err := Pack(t.Context(), dir, new(bytes.Buffer)); err == nil || !strings.Contains(err.Error(), "more than 64 MiB") {
			t.Error(err)
		}
		if err := os.Truncate(filepath.Join(dir, "a"), MaxBytes); err != nil {
			t.Fatal(err)
		}
		var out bytes.Buffer
		if _, err := Pack(t.Context(), dir, &out); err != nil {
			t.Errorf("at the limit: %v", err)
		}
		if out.Len() > MaxBytes+MaxHeaders {
			t.Errorf("the archive has %d bytes", out.Len())
		}
	})
}

// entry is one entry of a hostile archive.
func entry(h tar.Header, body string) []byte {
	var b bytes.Buffer
	w := tar.NewWriter(&b)
	if h.Size == 0 {
		h.Size = int64(len(body))
	}
	if err := w.WriteHeader(&h); err != nil {
		panic(err)
	}
	_, _ = w.Write([]byte(body))
	_ = w.Flush()
	return b.Bytes()
}

func plainFile(name, body string) []byte {
	return entry(*header(name, int64(len(body)), false), body)
}

// hostile are archives that nothing good packs.
func hostile() map[string][]byte {
	end := make([]byte, 1024)
	join := func(parts ...[]byte) []byte { return append(bytes.Join(parts, nil), end...) }
	h := map[string][]byte{
		"upwards":               join(plainFile("../x", "x")),
		"upwards within":        join(plainFile("a/../../x", "x")),
		"absolute":              join(plainFile("/tmp/x", "x")),
		"dot":                   join(plainFile("./x", "x")),
		"doubled":               join(plainFile("x", "1"), plainFile("x", "2")),
		"out of order":          join(plainFile("y", "1"), plainFile("x", "2")),
		"file as folder":        join(plainFile("x", "1"), plainFile("x/y", "2")),
		"link":                  join(entry(tar.Header{Typeflag: tar.TypeSymlink, Name: "x", Linkname: "/etc"}, "")),
		"hard link":             join(entry(tar.Header{Typeflag: tar.TypeLink, Name: "x", Linkname: "/etc/passwd"}, "")),
		"link, then through it": join(entry(tar.Header{Typeflag: tar.TypeSymlink, Name: "a", Linkname: "/tmp"}, ""), plainFile("a/x", "x")),
		"device":                join(entry(tar.Header{Typeflag: tar.TypeChar, Name: "x", Devmajor: 1, Devminor: 3}, "")),
		"pipe":                  join(entry(tar.Header{Typeflag: tar.TypeFifo, Name: "x"}, "")),
		"folder":                join(entry(tar.Header{Typeflag: tar.TypeDir, Name: "x/"}, "")),
		"long PAX name":         join(entry(tar.Header{Typeflag: tar.TypeReg, Name: strings.Repeat("n", 300)}, "")),
		"control":               join(plainFile("a\nb", "x")),
		"backslash":             join(plainFile(`a\..\b`, "x")),
		"too large":             entry(tar.Header{Typeflag: tar.TypeReg, Name: "x", Size: MaxBytes + 1}, "x"),
		"cut off":               entry(tar.Header{Typeflag: tar.TypeReg, Name: "x", Size: 1000}, "x"),
		"junk":                  bytes.Repeat([]byte("junk"), 300),
	}
	return h
}

func TestUnpackRefuses(t *testing.T) {
	for name, archive := range hostile() {
		t.Run(name, func(t *testing.T) {
			got, err := unpacked(t, archive)
			if domain.KindOf(err) != domain.KindInvalid {
				t.Errorf("%v, written: %v", err, got)
			}
		})
	}
	t.Run("too many files", func(t *testing.T) {
		var b bytes.Buffer
		w := tar.NewWriter(&b)
		for i := range MaxFiles + 1 {
			if err := w.WriteHeader(header("f"+string([]byte{byte('a' + i/676%26), byte('a' + i/26%26), byte('a' + i%26)}), 0, false)); err != nil {
				t.Fatal(err)
			}
		}
		if _, err := unpacked(t, b.Bytes()); err == nil || !strings.Contains(err.Error(), "more than 4096 files") {
			t.Error(err)
		}
	})
}

// FuzzUnpack looks for archives that crash the reader, write outside of the folder, or make anything but plain files.
func FuzzUnpack(f *testing.F) {
	for _, archive := range hostile() {
		f.Add(archive)
	}
	f.Add(append(plainFile("a/b.py", "text"), make([]byte, 1024)...))
	outer := f.TempDir() // one for all: a new one for each try costs more than the try
	inner := filepath.Join(outer, "in", "side")
	f.Fuzz(func(t *testing.T, archive []byte) {
		if err := errors.Join(os.RemoveAll(inner), os.MkdirAll(inner, 0o700)); err != nil {
			t.Fatal(err)
		}
		root, err := os.OpenRoot(inner)
		if err != nil {
			t.Fatal(err)
		}
		defer root.Close()
		_ = Unpack(bytes.NewReader(archive), root)
		err = filepath.WalkDir(outer, func(path string, d fs.DirEntry, err error) error {
			if err == nil && !d.IsDir() && (!d.Type().IsRegular() || !strings.HasPrefix(path, inner)) {
				t.Errorf("%s was made", path)
			}
			return err
		})
		if err != nil {
			t.Fatal(err)
		}
	})
}
