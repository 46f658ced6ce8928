package doctor

import (
	"archive/tar"
	"compress/gzip"
	"encoding/json"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"tensorturn/domain"
)

// Limits of a support archive: it stays small enough for a mail, whatever the machine holds.
const (
	MaxBundle = 8 << 20   // bytes before compression
	logTail   = 256 << 10 // bytes of each log, from its end
	maxLogs   = 16        // logs, newest first
	maxFiles  = 2000      // files in the list of the folder
)

// Bundle is what a support archive is made of. Everything in it passes the Cleaner; nothing is copied as it is.
type Bundle struct {
	At      time.Time
	Reports []Report
	Facts   map[string]string   // of program and machine
	Config  []map[string]string // of each folder: chosen fields alone, never a file of keys
	Environ []string
	Dirs    []string // folders whose files are listed by name, size and mode
	Logs    []string // files whose ends go in
	Cleaner *Cleaner
}

const bundleReadme = `A support archive of tensorturn, made by tensorturn doctor --bundle.

report.json        what the doctor found
facts.json         program, system, limits, the proxy without user and password
config.json        addresses, public keys and times of the folder; no secrets
environment.txt    names of all variables; values only of those that hold no secrets
files.txt          names, sizes and modes in the folder; no contents
%s

Keys, seeds, credentials and tokens are left out, and their values are taken out wherever else they stand. What your own
programs print may hold what only you know to be secret: look through it before you send it.
`

// The line of the readme about logs.
const (
	logsReadme   = "logs/              the ends of logs, line by line without what looks like a secret"
	noLogsReadme = "There is no log in it: hub and agent log to standard error. doctor --bundle FILE --log LOG adds a file of it."
)

// Write writes the archive as tar.gz.
func (b *Bundle) Write(w io.Writer) error {
	z := gzip.NewWriter(w)
	t := tar.NewWriter(z)
	a := &archive{tar: t, at: b.At, room: MaxBundle}
	logs := logsReadme
	if len(b.Logs) == 0 {
		logs = noLogsReadme
	}
	a.add("README.txt", fmt.Sprintf(bundleReadme, logs))
	a.json("report.json", b.Cleaner.Reports(b.Reports))
	a.json("facts.json", b.Cleaner.fields(b.Facts))
	config := make([]map[string]string, 0, len(b.Config))
	for _, c := range b.Config {
		config = append(config, b.Cleaner.fields(c))
	}
	a.json("config.json", config)
	a.add("environment.txt", b.Cleaner.Text(environment(b.Environ)))
	a.add("files.txt", b.Cleaner.Text(listing(b.Dirs)))
	names := map[string]int{}
	for _, path := range b.Logs[:min(len(b.Logs), maxLogs)] {
		name := filepath.Base(path)
		if names[name]++; names[name] > 1 {
			name = fmt.Sprintf("%d-%s", names[name], name)
		}
		a.add("logs/"+b.Cleaner.Text(name), b.Cleaner.Text(tail(path)))
	}
	if err := t.Close(); a.err == nil {
		a.err = err
	}
	if err := z.Close(); a.err == nil {
		a.err = err
	}
	if a.err != nil {
		return domain.Unavailable("write the support archive", "it could not be written", "check the disk it goes to", a.err)
	}
	return nil
}

// archive keeps the first error and the room that is left.
type archive struct {
	tar  *tar.Writer
	at   time.Time
	room int
	err  error
}

func (a *archive) json(name string, v any) {
	b, err := json.MarshalIndent(v, "", "  ")
	if err != nil && a.err == nil {
		a.err = err
	}
	a.add(name, string(b)+"\n")
}

func (a *archive) add(name, text string) {
	if a.err != nil {
		return
	}
	if len(text) > a.room { // the end of a log matters most; what comes after has no room at all
		text = text[len(text)-a.room:]
	}
	a.room -= len(text)
	a.err = a.tar.WriteHeader(&tar.Header{Name: name, Mode: 0o600, Size: int64(len(text)), ModTime: a.at, Format: tar.FormatPAX})
	if a.err == nil {
		_, a.err = io.WriteString(a.tar, text)
	}
}

// harmless are variables whose values hold no secrets and help; all others are named alone.
var harmless = [...]string{"PATH", "HOME", "LANG", "TZ", "TMPDIR", "SHELL", "TERM", "LD_LIBRARY_PATH", "VIRTUAL_ENV", "CONDA_PREFIX", "NO_PROXY", "no_proxy",
	"GOMAXPROCS", "GOMEMLIMIT", "TENSORTURN_CONTEXT", "CUDA_VISIBLE_DEVICES", "CUDA_HOME", "NVIDIA_VISIBLE_DEVICES", "NVIDIA_DRIVER_CAPABILITIES", "OMP_NUM_THREADS", "MKL_NUM_THREADS",
	"XDG_DATA_HOME", "XDG_CONFIG_HOME", "XDG_CACHE_HOME"}

func environment(env []string) string {
	var lines []string
	for _, kv := range env {
		name, value, ok := strings.Cut(kv, "=")
		if !ok {
			continue
		}
		if !slices.Contains(harmless[:], name) {
			value = "(set)"
		}
		lines = append(lines, name+"="+value)
	}
	slices.Sort(lines)
	return strings.Join(lines, "\n") + "\n"
}

// listing names what is in the folders. It follows no links.
func listing(dirs []string) string {
	var out strings.Builder
	n := 0
	for _, dir := range dirs {
		fmt.Fprintf(&out, "%s\n", dir)
		_ = filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
			if n++; n > maxFiles {
				fmt.Fprintf(&out, "  and more than %d others\n", maxFiles)
				return fs.SkipAll
			}
			if err != nil {
				fmt.Fprintf(&out, "  %v\n", err)
				return nil
			}
			if info, err := d.Info(); err == nil {
				rel, _ := filepath.Rel(dir, path)
				fmt.Fprintf(&out, "  %s %12d %s %s\n", info.Mode(), info.Size(), info.ModTime().UTC().Format(time.RFC3339), rel)
			}
			return nil
		})
	}
	return out.String()
}

// tail is the end of a log, from the beginning of a line.
func tail(path string) string {
	f, err := os.Open(path)
	if err != nil {
		return "cannot be read: " + err.Error() + "\n"
	}
	defer func() { _ = f.Close() }()
	info, err := f.Stat()
	if err != nil || !info.Mode().IsRegular() {
		return "is no regular file\n"
	}
	from := max(0, info.Size()-logTail)
	b, err := io.ReadAll(io.LimitReader(io.NewSectionReader(f, from, logTail), logTail))
	if err != nil {
		return "cannot be read: " + err.Error() + "\n"
	}
	if from > 0 { // half a line may hold half a secret, which no form fits
		i := slices.Index(b, '\n')
		if i < 0 {
			return "its last line is too long\n"
		}
		b = b[i+1:]
	}
	return string(b)
}
