package sandbox

import (
	"context"
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
)

// systemPaths are what programs of any kind read. Of /etc only what libraries look up: as root a program could read the
// passwords' hashes there.
var systemPaths = [...]string{"/usr", "/bin", "/sbin", "/lib", "/lib32", "/lib64", "/opt", "/nix/store", "/sys",
	"/etc/ld.so.cache", "/etc/ld.so.conf", "/etc/ld.so.conf.d", "/etc/ld.so.preload", "/etc/alternatives", "/etc/nsswitch.conf", "/etc/hosts",
	"/etc/host.conf", "/etc/resolv.conf", "/etc/gai.conf", "/etc/passwd", "/etc/group", "/etc/localtime", "/etc/timezone", "/etc/locale.alias",
	"/etc/services", "/etc/protocols", "/etc/mime.types", "/etc/ssl/certs", "/etc/ssl/openssl.cnf", "/etc/ca-certificates", "/etc/pki/tls/certs",
	"/etc/pki/ca-trust/extracted", "/etc/fonts", "/etc/OpenCL", "/etc/vulkan", "/etc/nvidia", "/etc/os-release", "/etc/debian_version",
	"/etc/python3", "/etc/python3.11", "/etc/python3.12", "/etc/python3.13", "/etc/matplotlibrc"}

// plainDevices are the devices of any program.
var plainDevices = [...]string{"/dev/null", "/dev/zero", "/dev/full", "/dev/random", "/dev/urandom"}

// deviceGlobs are those of accelerators: NVIDIA (with unified memory and MIG), AMD, Intel, WSL.
var deviceGlobs = [...]string{"/dev/nvidia*", "/dev/nvidia-caps/*", "/dev/dri/*", "/dev/kfd", "/dev/dxg", "/dev/accel/*"}

// System gives the policy that every program starts from: the system's libraries and the devices.
func System() Policy {
	p := Policy{Read: slices.Clone(systemPaths[:]), Devices: slices.Clone(plainDevices[:])}
	for _, g := range deviceGlobs {
		found, _ := filepath.Glob(g) // the pattern is well formed
		for _, path := range found {
			if info, err := os.Stat(path); err == nil && info.Mode()&os.ModeDevice != 0 {
				p.Devices = append(p.Devices, path)
			}
		}
	}
	return p
}

// question is what an interpreter is asked: where it and its modules live. It runs outside of the sandbox, since it is the
// machine's own program; -I keeps the current folder and the environment out of it.
const question = "import json,sys,site;print(json.dumps([sys.executable,sys.prefix,sys.base_prefix,site.getusersitepackages()]+sys.path))"

// Interpreter gives the trees a Python interpreter reads: its own file and modules, those of the environment it
// belongs to, and the user's. A home folder is never among them. Of another program it gives the file alone.
func Interpreter(ctx context.Context, path string) []string {
	paths := appendReal(nil, path)
	if !strings.Contains(filepath.Base(path), "python") {
		return paths
	}
	ctx, cancel := context.WithTimeout(ctx, askTime)
	defer cancel()
	cmd := exec.CommandContext(ctx, path, "-I", "-c", question)
	cmd.Env = []string{"PATH=" + os.Getenv("PATH"), "HOME=" + os.Getenv("HOME")}
	out, err := cmd.Output()
	var told []string
	if err != nil || len(out) > maxProofText || json.Unmarshal(out, &told) != nil || len(told) < 4 {
		return paths
	}
	paths = appendReal(paths, told[0])
	for _, prefix := range told[1:3] {
		for _, part := range []string{"bin", "lib", "lib64", "include", "pyvenv.cfg", "conda-meta"} {
			paths = appendReal(paths, filepath.Join(prefix, part))
		}
	}
	for _, dir := range told[3:] {
		paths = appendReal(paths, dir)
	}
	return paths
}

// appendReal adds the path and where it leads, but never a root, a home folder or anything above one.
func appendReal(paths []string, path string) []string {
	home, _ := os.UserHomeDir() // "" when there is none
	add := func(p string) {
		if filepath.IsAbs(p) && p != "/" && !within(home, p) && !slices.Contains(paths, p) {
			paths = append(paths, p)
		}
	}
	add(filepath.Clean(path))
	if real, err := filepath.EvalSymlinks(path); err == nil {
		add(real)
	}
	return paths
}

// within reports whether path is dir or lies below it.
func within(path, dir string) bool {
	rel, err := filepath.Rel(dir, path)
	return path != "" && err == nil && rel != ".." && !strings.HasPrefix(rel, "../")
}
