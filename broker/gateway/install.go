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
	"time"

	"tensorturn/domain"
)

// installScript gives a POSIX shell script that fetches this hub's own binary, checks its SHA-256 and puts it into a
// folder of the user's. It fits machines of the hub's own kind; for others the script says what to do.
func (g *Gateway) installScript(w http.ResponseWriter, r *http.Request) {
	sum, err := g.binary.sum(g.cfg.Binary)
	if err != nil {
		g.refuse(w, domain.Unavailable("make the install script", "the hub cannot read its own program", "copy the binary by hand", err))
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
	release, ok := g.downloads.enter(r.RemoteAddr)
	if !ok {
		g.refuse(w, domain.Unavailable("send the program", "it is being fetched too often", "try again in a minute, or copy the binary by hand", nil))
		return
	}
	defer release()
	http.NewResponseController(w).SetWriteDeadline(time.Now().Add(maxWrite))
	w.Header().Set("Content-Type", "application/octet-stream")
	http.ServeFile(w, r, g.cfg.Binary)
}

// installCA gives the CA certificate. It is public; an agent believes it only after it matches the pin of its token.
func (g *Gateway) installCA(w http.ResponseWriter, r *http.Request) {
	w.Header().Set("Content-Type", "application/x-pem-file")
	w.Write(g.cfg.CA)
}

// fileSum knows the SHA-256 of a file, and reads it again when the file was replaced: an upgrade under a running hub.
type fileSum struct {
	mu    sync.Mutex
	size  int64
	mtime time.Time
	last  string
}

func (f *fileSum) sum(path string) (string, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	file, err := os.Open(path)
	if err != nil {
		return "", err
	}
	defer file.Close()
	info, err := file.Stat()
	if err != nil {
		return "", err
	}
	if f.last != "" && info.Size() == f.size && info.ModTime().Equal(f.mtime) {
		return f.last, nil
	}
	h := sha256.New()
	if _, err := io.Copy(h, file); err != nil {
		return "", err
	}
	f.last, f.size, f.mtime = hex.EncodeToString(h.Sum(nil)), info.Size(), info.ModTime()
	return f.last, nil
}
