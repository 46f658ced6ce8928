package main

import (
	"encoding/json"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"time"

	"tensorturn/agent/doctor"
	"tensorturn/broker/identity"
	"tensorturn/domain"
)

// writeBundle writes the support archive. A file that is there already is not replaced.
func writeBundle(o doctorOptions, ps []doctor.Patient, rs []doctor.Report) (err error) {
	const op = "write the support archive"
	f, err := os.OpenFile(o.bundle, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
	if errors.Is(err, fs.ErrExist) {
		return domain.Conflict(op, o.bundle+" exists", "choose another name")
	}
	if err != nil {
		return domain.Invalid(op, plainPathError(err), "choose another file with --bundle")
	}
	defer func() {
		if cerr := f.Close(); err == nil && cerr != nil {
			err = domain.Unavailable(op, "it could not be written", "check the disk it goes to", cerr)
		}
		if err != nil {
			_ = os.Remove(o.bundle)
		}
	}()
	b := doctor.Bundle{At: wallClock().UTC().Truncate(time.Second), Reports: rs, Environ: os.Environ(), Facts: facts()}
	secrets := doctor.Secrets(os.Environ())
	for _, p := range ps {
		secrets = append(secrets, secretsOf(p)...)
		b.Config = append(b.Config, folderFacts(p))
		b.Dirs = append(b.Dirs, p.Dir)
		b.Logs = append(b.Logs, newestLogs(filepath.Join(p.Dir, "trainers", "logs"))...)
	}
	b.Logs = append(slices.Clone(o.logs), b.Logs...)
	b.Cleaner = doctor.NewCleaner(secrets)
	return b.Write(f)
}

func facts() map[string]string {
	files, _ := doctor.OpenFiles() // 0 where it is not known
	return map[string]string{"version": version, "go": runtime.Version(), "system": runtime.GOOS + "/" + runtime.GOARCH, "cores": strconv.Itoa(runtime.NumCPU()),
		"proxy": doctor.ProxyOf(os.Environ()), "open files": strconv.FormatUint(files, 10), "temporary folder": os.TempDir(), "user": strconv.Itoa(os.Getuid()), "time": wallClock().UTC().Format(time.RFC3339)}
}

// folderFacts gives the fields of a folder that help and are no secrets.
func folderFacts(p doctor.Patient) map[string]string {
	c := map[string]string{"kind": string(p.Kind), "dir": p.Dir, "hub": p.Hub, "ca": string(p.CA)}
	if p.Kind == doctor.Hub {
		return c
	}
	if keys, err := identity.LoadAgentKeys(filepath.Join(p.Dir, agentKeysFile)); err == nil {
		c["machine"], c["nkey"] = string(keys.Machine), keys.NKey()
	}
	if v, err := identity.ReadValidity(p.Credential); err == nil {
		c["credential issued"], c["credential expires"] = v.Issued.UTC().Format(time.RFC3339), v.Expires.UTC().Format(time.RFC3339)
	}
	return c
}

// Bounds of the search for secrets in a folder.
const (
	maxSecretFiles = 4 * domain.MaxMachines
	maxSecretBytes = 256 << 10
)

// secretsOf collects the values that must not leave: whatever stands in files that hold keys, whole or damaged.
func secretsOf(p doctor.Patient) []string {
	out := []string{p.Token, p.Credential, p.OperatorKey}
	n := 0
	_ = filepath.WalkDir(p.Dir, func(path string, d fs.DirEntry, err error) error {
		if err != nil || n > maxSecretFiles {
			return nil
		}
		rel, _ := filepath.Rel(p.Dir, path)
		name := filepath.Base(rel)
		inKeys := strings.HasPrefix(rel, "keys"+string(filepath.Separator))
		if d.IsDir() {
			if rel != "." && rel != "keys" && !inKeys {
				return fs.SkipDir
			}
			return nil
		}
		if !d.Type().IsRegular() || strings.HasSuffix(name, ".crt") || !inKeys && name != agentKeysFile && name != "operator.json" {
			return nil
		}
		n++
		out = append(out, wordsIn(path)...)
		return nil
	})
	return out
}

// wordsIn gives what may be secret in a file of keys: of a JSON file the values of all fields but those that are public, of a damaged
// one every long word, of others the lines.
func wordsIn(path string) (out []string) {
	b, err := readFileLimited(path, maxSecretBytes)
	if err != nil {
		return nil
	}
	if !strings.HasSuffix(path, ".json") {
		return []string{string(b)}
	}
	var fields map[string]any
	if json.Unmarshal(b, &fields) != nil {
		for _, word := range strings.FieldsFunc(string(b), func(r rune) bool { return strings.ContainsRune("\"{},: \n\t\\", r) }) {
			if len(word) >= 20 {
				out = append(out, word)
			}
		}
		return out
	}
	for name, v := range fields {
		if value, ok := v.(string); ok && !slices.Contains([]string{"hub", "url", "ca", "machine", "head_key"}, name) {
			out = append(out, value)
		}
	}
	return out
}

func readFileLimited(path string, n int64) ([]byte, error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer func() { _ = f.Close() }()
	return readLimited(f, n)
}

// newestLogs lists the files of a folder, newest first.
func newestLogs(dir string) []string {
	entries, err := os.ReadDir(dir)
	if err != nil {
		return nil
	}
	at := func(e fs.DirEntry) time.Time {
		info, err := e.Info()
		if err != nil {
			return time.Time{}
		}
		return info.ModTime()
	}
	slices.SortFunc(entries, func(a, b fs.DirEntry) int { return at(b).Compare(at(a)) })
	var out []string
	for _, e := range entries {
		if e.Type().IsRegular() {
			out = append(out, filepath.Join(dir, e.Name()))
		}
	}
	return out
}
