package doctor

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// A child that talks and talks is kept to the limit, and its last line is still understood.
func TestATalkativeInterpreter(t *testing.T) {
	const talk = "#!/bin/sh\nhead -c 1048576 /dev/zero | tr '\\0' 'x'\nhead -c 1048576 /dev/zero | tr '\\0' 'y' >&2\n"
	for name, c := range map[string]struct{ end, version, why string }{
		"it answers at last": {"echo; echo '{\"version\": [3, 12], \"torch\": \"2.9\"}'\n", "2.9", ""},
		"it fails":           {"echo >&2; echo why it fails >&2; exit 3\n", "", "why it fails"},
	} {
		path := filepath.Join(t.TempDir(), "python3")
		if err := os.WriteFile(path, []byte(talk+c.end), 0o700); err != nil {
			t.Fatal(err)
		}
		env := []string{"PATH=" + os.Getenv("PATH")}
		if p := AskPython(t.Context(), path, env, nil); p.Torch != c.version || !strings.Contains(p.Trouble, c.why) {
			t.Errorf("%s: %+v", name, p)
		}
		out, err := runPython(t.Context(), path, script, env)
		if n := len(out.String()); n != maxPythonOut {
			t.Errorf("%s: %d bytes are kept, at most %d (%v)", name, n, maxPythonOut, err)
		}
	}
}
