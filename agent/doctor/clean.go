package doctor

import (
	"encoding/json"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"tensorturn/domain/redact"
)

// shortestSecret is the length below which a value is not taken out of text: "true" is no secret, and would leave holes everywhere.
const shortestSecret = 8

// Cleaner takes secrets out of text: those it is told by value, and what looks like one. Not safe for concurrent use.
type Cleaner struct{ known *strings.Replacer }

// NewCleaner makes a Cleaner that knows the secrets' values, each of which may have several lines.
func NewCleaner(secrets []string) *Cleaner {
	var forms []string
	for _, s := range secrets {
		for line := range strings.Lines(s) {
			line = strings.TrimSpace(line)
			if len(line) < shortestSecret || strings.HasPrefix(line, "-----") { // the marks of a private key are what its form is known by
				continue
			}
			quoted, _ := json.Marshal(line) // a string has no errors
			forms = append(forms, line, url.QueryEscape(line), url.PathEscape(line), strings.Trim(string(quoted), `"`))
		}
	}
	slices.SortFunc(forms, func(a, b string) int { return len(b) - len(a) }) // one may be the beginning of another
	forms = slices.Compact(forms)
	var pairs []string
	for _, f := range forms {
		pairs = append(pairs, f, redact.Mark)
	}
	return &Cleaner{strings.NewReplacer(pairs...)}
}

// Secrets picks what may be secret out of an environment: every value of a variable that is not known to be harmless, but for files that
// are there. Of a proxy's address it is user and password.
func Secrets(env []string) (out []string) {
	for _, kv := range env {
		name, value, ok := strings.Cut(kv, "=")
		switch {
		case !ok || slices.Contains(harmless[:], name):
		case slices.Contains(proxies[:], strings.ToUpper(name)):
			out = append(out, proxySecrets(value)...)
		case !isPath(value):
			out = append(out, value)
		}
	}
	return out
}

// isPath reports whether a value names a file, or a list of them, each of which is there. A first slash alone says nothing: base64 may
// begin with one.
func isPath(value string) bool {
	all := filepath.SplitList(value)
	for _, path := range all {
		if !filepath.IsAbs(path) {
			return false
		}
		if _, err := os.Lstat(path); err != nil {
			return false
		}
	}
	return len(all) > 0
}

// Text gives the text without secrets.
func (c *Cleaner) Text(s string) string {
	return redact.Text(c.known.Replace(strings.ToValidUTF8(s, "?")))
}

// Reports cleans what was found.
func (c *Cleaner) Reports(rs []Report) []Report {
	out := slices.Clone(rs)
	for i := range out {
		r := &out[i]
		r.Dir, r.Hub, r.Findings = c.Text(r.Dir), c.Text(r.Hub), slices.Clone(r.Findings)
		for k := range r.Findings {
			f := &r.Findings[k]
			f.Says, f.Fix = c.Text(f.Says), c.Text(f.Fix)
		}
	}
	return out
}

func (c *Cleaner) fields(m map[string]string) map[string]string {
	out := make(map[string]string, len(m))
	for k, v := range m {
		out[k] = c.Text(v)
	}
	return out
}
