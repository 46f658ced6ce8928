package gateway

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"io"
	"net/http"
	"os"
	"runtime"
	"strings"
	"sync"

	"tensorturn/domain"
)

// installScript gives a POSIX shell script that fetches this hub's own binary, checks its SHA-256 and puts it into a
// folder of the user's. It fits machines of the hub's own kind; for others the script says what to do.
func (g *Gateway) installScript(w http.ResponseWriter, r *http.Request) {
	sum, err := g.binarySum.of(g.cfg.Binary)
	if err != nil {
		refuse(w, domain.Unavailable("make the install script", "the hub cannot read its own program", "copy the binary by hand", err))
		return
	}
	w.Header().Set("Content-Type", "text/x-shellscript")
	fmt.Fprintf(w, `#!/bin/sh
# installs tensorturn %s from its hub into ${PREFIX:-$HOME/.local/bin}
set -eu
os=$(uname -s | tr A-Z a-z); arch=$(uname -m)
case $arch in x86_64) arch=amd64 ;; aarch64) arch=arm64 ;; esac
if [ "$os/$arch" != "%s/%s" ]; then
  echo "this hub carries the program for %s/%s, this machine is $os/$arch: build it with GOOS=$os GOARCH=$arch make build" >&2; exit 1
fi
dir=${PREFIX:-$HOME/.local/bin}; mkdir -p "$dir"; tmp=$(mktemp "$dir/.tensorturn.XXXXXX"); trap 'rm -f "$tmp"' EXIT
# the hub's certificate is its own; the checksum in this script stands in for it
curl -fsSk -o "$tmp" "%s/install/tensorturn"
echo "%s  $tmp" | sha256sum -c - >/dev/null
chmod 755 "$tmp"; mv "$tmp" "$dir/tensorturn"; trap - EXIT
echo "installed $dir/tensorturn"
`, shellSafe(g.cfg.Version), runtime.GOOS, runtime.GOARCH, runtime.GOOS, runtime.GOARCH, shellSafe(g.cfg.PublicURL), sum)
}

// shellSafe keeps what may stand inside double quotes of a shell script: the version and the URL come from flags.
func shellSafe(s string) string {
	return strings.Map(func(r rune) rune {
		if r >= 'a' && r <= 'z' || r >= 'A' && r <= 'Z' || r >= '0' && r <= '9' || strings.ContainsRune(":/.-_[]", r) {
			return r
		}
		return -1
	}, s)
}

func (g *Gateway) installBinary(w http.ResponseWriter, r *http.Request) {
	w.Header().Set("Content-Type", "application/octet-stream")
	http.ServeFile(w, r, g.cfg.Binary)
}

// installCA gives the CA certificate. It is public; an agent believes it only after it matches the pin of its token.
func (g *Gateway) installCA(w http.ResponseWriter, r *http.Request) {
	w.Header().Set("Content-Type", "application/x-pem-file")
	w.Write(g.cfg.CA)
}

// fileSum computes the SHA-256 of a file once.
type fileSum struct {
	once sync.Once
	sum  string
	err  error
}

func (f *fileSum) of(path string) (string, error) {
	f.once.Do(func() {
		file, err := os.Open(path)
		if err != nil {
			f.err = err
			return
		}
		defer file.Close()
		h := sha256.New()
		if _, f.err = io.Copy(h, file); f.err == nil {
			f.sum = hex.EncodeToString(h.Sum(nil))
		}
	})
	return f.sum, f.err
}
