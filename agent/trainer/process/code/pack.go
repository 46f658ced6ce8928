package code

import (
	"archive/tar"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"strings"

	"tensorturn/domain"
)

const opPack = "pack code"

// never are folders that are no part of a program, whatever git says.
const never = " .git .hg .svn __pycache__ .venv node_modules .ipynb_checkpoints .mypy_cache .pytest_cache "

// Pack writes the archive of the folder to w. Files that git ignores are left out; git is asked, in the repository that
// holds the folder or, where there is none, in an empty one. A folder without any ignore file needs no git. Links are
// packed as what they point to if that lies within the folder, and refused otherwise.
func Pack(ctx context.Context, dir string, w io.Writer) (Facts, error) {
	root, err := os.OpenRoot(dir)
	if err != nil {
		return Facts{}, domain.NotFound(opPack, plain(err), "code: names a folder, relative to the spec's")
	}
	defer func() { _ = root.Close() }()
	names, err := list(ctx, dir, root)
	if err != nil {
		return Facts{}, err
	}
	if len(names) == 0 {
		return Facts{}, domain.Invalid(opPack, fmt.Sprintf("there is no file to pack in %s", dir), "put the script there, or name another folder with code:")
	}
	if len(names) > MaxFiles {
		return Facts{}, domain.Invalid(opPack, fmt.Sprintf("%s has %d files, at most %d are packed", dir, len(names), MaxFiles), "keep data elsewhere, or name them in .gitignore")
	}
	out, f := tar.NewWriter(w), Facts{}
	for _, name := range names {
		n, err := add(out, root, name, MaxBytes-f.Bytes)
		if err != nil {
			return f, err
		}
		f.Files, f.Bytes = f.Files+1, f.Bytes+n
	}
	return f, out.Close()
}

// add packs one file of at most left bytes.
func add(out *tar.Writer, root *os.Root, name string, left int64) (int64, error) {
	if err := checkName(name); err != nil {
		return 0, domain.Invalid(opPack, err.Error(), "rename it, or name it in .gitignore")
	}
	f, err := root.Open(name)
	if err != nil {
		return 0, domain.Invalid(opPack, fmt.Sprintf("%q cannot be read: %s", name, plain(err)), "a link must not lead out of the folder; name it in .gitignore")
	}
	defer func() { _ = f.Close() }()
	info, err := f.Stat()
	if err != nil || !info.Mode().IsRegular() {
		return 0, domain.Invalid(opPack, fmt.Sprintf("%q is no plain file", name), "name it in .gitignore")
	}
	if info.Size() > left {
		return 0, domain.Invalid(opPack, fmt.Sprintf("the folder has more than %d MiB, reached at %q", MaxBytes>>20, name), "keep data elsewhere, or name them in .gitignore")
	}
	if err := out.WriteHeader(header(name, info.Size(), info.Mode()&0o100 != 0)); err != nil {
		return 0, domain.Invalid(opPack, fmt.Sprintf("%q: %v", name, err), "give it a shorter name")
	}
	n, err := io.Copy(out, io.LimitReader(f, info.Size()))
	if err == nil && n != info.Size() {
		err = domain.Conflict(opPack, fmt.Sprintf("%q changed while it was packed", name), "submit again")
	}
	return n, err
}

// list gives the names of all files to pack, in order.
func list(ctx context.Context, dir string, root *os.Root) ([]string, error) {
	all, ignores, err := walk(root)
	if err != nil {
		return nil, err
	}
	inside := exec.CommandContext(ctx, "git", "-C", dir, "rev-parse", "--is-inside-work-tree").Run() == nil
	if !inside && !ignores {
		return sorted(all), nil
	}
	kept, err := askGit(ctx, dir, inside)
	if err != nil {
		return nil, domain.Invalid(opPack, "there is a .gitignore, and git cannot be asked: "+err.Error(), "install git, or remove the .gitignore")
	}
	var names []string
	for _, name := range sorted(all) {
		if kept[name] {
			names = append(names, name)
		}
	}
	return names, nil
}

// walk lists plain files and links, and says whether there is an ignore file.
func walk(root *os.Root) (all []string, ignores bool, err error) {
	err = fs.WalkDir(root.FS(), ".", func(name string, d fs.DirEntry, err error) error {
		switch {
		case err != nil:
			return err
		case d.IsDir() && strings.Contains(never, " "+d.Name()+" "):
			return fs.SkipDir
		case d.IsDir():
			return nil
		case len(all) > 16*MaxFiles:
			return errors.New("there are far too many files")
		case path.Base(name) == ".gitignore":
			ignores = true
		}
		all = append(all, name)
		return nil
	})
	if err != nil {
		return nil, false, domain.Invalid(opPack, plain(err), "name the folder of the script with code:")
	}
	return all, ignores, nil
}

// askGit lists what git does not ignore.
func askGit(ctx context.Context, dir string, inside bool) (map[string]bool, error) {
	args := []string{"-C", dir}
	if !inside {
		tmp, err := os.MkdirTemp("", "tensorturn-git-")
		if err != nil {
			return nil, err
		}
		defer func() { _ = os.RemoveAll(tmp) }()
		if err := exec.CommandContext(ctx, "git", "init", "--quiet", "--bare", tmp).Run(); err != nil {
			return nil, err
		}
		abs, err := filepath.Abs(dir)
		if err != nil {
			return nil, err
		}
		args = []string{"-C", dir, "--git-dir", tmp, "--work-tree", abs}
	}
	out, err := exec.CommandContext(ctx, "git", append(args, "ls-files", "-z", "--cached", "--others", "--exclude-standard")...).Output()
	if err != nil {
		return nil, err
	}
	kept := map[string]bool{}
	for _, name := range bytes.Split(out, []byte{0}) {
		kept[string(name)] = true
	}
	return kept, nil
}

// plain is an error without the name of the system call.
func plain(err error) string {
	var p *fs.PathError
	if errors.As(err, &p) {
		return p.Path + ": " + p.Err.Error()
	}
	return err.Error()
}
