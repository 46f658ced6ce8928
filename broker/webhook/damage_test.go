package webhook

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// TestDamagedHookIsStopped: one webhook's file that the disk has changed ends neither the hub nor the other webhooks, and no
// changed place leaves events out without a word.
func TestDamagedHookIsStopped(t *testing.T) {
	for name, harm := range map[string]func(path string) error{
		"another place": func(path string) error {
			b, err := os.ReadFile(path)
			if err != nil {
				return err
			}
			return os.WriteFile(path, []byte(strings.Replace(string(b), `"after": 17`, `"after": 97`, 1)), 0o600)
		},
		"cut":   func(path string) error { return os.Truncate(path, 30) },
		"empty": func(path string) error { return os.Truncate(path, 0) },
		"huge":  func(path string) error { return os.Truncate(path, 1<<40) },
		"folder": func(path string) error {
			if err := os.Remove(path); err != nil {
				return err
			}
			return os.Mkdir(path, 0o700)
		},
	} {
		dir := t.TempDir()
		for _, id := range []string{"w-1", "w-2"} {
			if err := (Hook{ID: id, URL: "https://example.org/x", After: 17}).save(dir); err != nil {
				t.Fatal(err)
			}
		}
		if err := harm(filepath.Join(dir, "w-1.json")); err != nil {
			t.Fatal(name, err)
		}
		list, err := load(dir)
		if err != nil || len(list) != 2 {
			t.Fatalf("%s: %d webhooks, %v", name, len(list), err)
		}
		if k := list[0]; k.ID != "w-1" || !k.lost || !strings.Contains(k.Stopped, "w-1.json is damaged") {
			t.Errorf("%s: %+v", name, k)
		}
		if k := list[1]; k.lost || k.Stopped != "" || k.After != 17 {
			t.Errorf("%s: the other one is %+v", name, k)
		}
	}
}
