package doctor

import (
	"context"
	"fmt"
	"os"

	"tensorturn/domain"
)

func lookDisk(_ context.Context, e *exam) Finding {
	free, err := e.Space(e.Dir)
	if err != nil {
		return skipped("the free space of " + e.Dir + " is not known: " + err.Error())
	}
	if free < e.MinFree {
		return problem(DiskSmall, fmt.Sprintf("%s are free on the disk of %s, %s are needed", domain.FormatSize(free), e.Dir, domain.FormatSize(e.MinFree)),
			"make room there, or move the folder to another disk and name it with --dir; an agent's cache is bounded with --cache")
	}
	return fine(fmt.Sprintf("%s are free on the disk of %s", domain.FormatSize(free), e.Dir))
}

// lookTemp writes to the temporary folder: Unix sockets, proofs of the sandbox and compiled kernels of torch go there.
func lookTemp(_ context.Context, e *exam) Finding {
	const fix = "make room there, or set TMPDIR to a folder of this user on a disk with room"
	f, err := os.CreateTemp(e.Temp, "tensorturn-doctor-")
	if err == nil {
		_, err = f.Write(make([]byte, 64<<10))
		if serr := f.Sync(); err == nil {
			err = serr
		}
		_ = f.Close()
		_ = os.Remove(f.Name())
	}
	if err != nil {
		return problem(TempFull, "the temporary folder "+e.Temp+" cannot be written: "+err.Error(), fix)
	}
	if free, err := e.Space(e.Temp); err == nil && free < tempFree {
		return problem(TempFull, fmt.Sprintf("%s are free in the temporary folder %s, %s are needed", domain.FormatSize(free), e.Temp, domain.FormatSize(int64(tempFree))), fix)
	}
	return fine("the temporary folder " + e.Temp + " can be written")
}

func lookFiles(_ context.Context, e *exam) Finding {
	limit, err := e.Files()
	if err != nil {
		return skipped("how many files a process may open is not known here")
	}
	need := uint64(agentFiles)
	if e.Kind == Hub {
		need = hubFiles
	}
	if limit < need {
		return problem(FilesLow, fmt.Sprintf("a process may open %d files, the %s needs %d", limit, e.Kind, need),
			fmt.Sprintf("ulimit -n %d in the shell that starts it, LimitNOFILE=%d in its systemd unit, or nofile in /etc/security/limits.conf", need, need))
	}
	return fine(fmt.Sprintf("a process may open %d files", limit))
}
