package process

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"os"
	"syscall"

	"tensorturn/domain"
	"tensorturn/domain/safetensors"
)

// Names of the files that the agent chooses.
const (
	loadFile    = "load.safetensors"
	saveFile    = "save.safetensors"
	inputFile   = "input.safetensors"
	outputFile  = "output.safetensors"
	stateFile   = "state.safetensors"
	modelFile   = "model.safetensors" // for a predict command
	rowsFile    = "rows.safetensors"  // samples trained in the place of others
	rowsName    = "rows"
	inputName   = "input"
	outputName  = "output"
	maxPredicts = 64 << 20 // values of one prediction
)

// openFile opens a file that the program wrote: inside the work folder, a plain file. A pipe would hold us for ever.
func (t *Trainer) openFile(name string) (*os.File, *Failure) { return openPlain(t.root, name) }

func openPlain(root *os.Root, name string) (*os.File, *Failure) {
	f, err := root.OpenFile(name, os.O_RDONLY|syscall.O_NONBLOCK, 0)
	if err != nil {
		return nil, fail(KindOutput, fmt.Sprintf("the file %s that the script wrote cannot be opened: %s", show(name), clean(err.Error(), 100)), "")
	}
	info, err := f.Stat()
	if err != nil || !info.Mode().IsRegular() || info.Size() > domain.MaxBlobBytes {
		_ = f.Close()
		return nil, fail(KindOutput, fmt.Sprintf("%s is no plain file", show(name)), "")
	}
	return f, nil
}

// createFile makes a file anew for the program to read. What the program has put in its place goes first: a link would have us
// write outside of its sandbox, a pipe would hold us for ever. What it puts there in between is refused.
func createFile(root *os.Root, name string) (*os.File, error) {
	if err := root.RemoveAll(name); err != nil {
		return nil, err
	}
	return root.OpenFile(name, os.O_CREATE|os.O_EXCL|os.O_RDWR, 0o600)
}

// Init implements trainer.Trainer: the weights that the program had when it said hello.
func (t *Trainer) Init(ctx context.Context) error {
	if err := t.usable(ctx); err != nil || t.alone() || t.silent {
		return err // a program alone begins when it trains
	}
	f, failure := t.openFile(t.hello.Weights)
	if failure != nil {
		return t.failed(failure)
	}
	defer func() { _ = f.Close() }()
	if err := t.Load(ctx, f); err != nil {
		return fmt.Errorf("initial weights: %w", err)
	}
	return nil
}

// Load implements trainer.Trainer. The stream is checked while it is written to disk; the program sees whole, finite
// weights of its layout or nothing.
func (t *Trainer) Load(ctx context.Context, weights io.Reader) error {
	if err := t.usable(ctx); err != nil {
		return err
	}
	if t.silent {
		if err := t.meetAgain(ctx); err != nil {
			return err
		}
	}
	if t.alone() {
		return t.loadAlone(weights)
	}
	f, err := createFile(t.root, loadFile)
	if err != nil {
		return domain.Unavailable("load weights", "the work folder cannot be written", "check the disk of the agent's directory", err)
	}
	err = errors.Join(t.copyWeights(ctx, f, weights), f.Close())
	if err != nil {
		return fmt.Errorf("load weights: %w", err)
	}
	return t.call(ctx, request{Type: "load", File: loadFile})
}

// Save implements trainer.Trainer: equal weights give equal bytes, however the program writes its header.
func (t *Trainer) Save(ctx context.Context, w io.Writer) error {
	if t.alone() {
		if err := t.usable(ctx); err != nil {
			return err
		}
		return t.saveOutput(ctx, w)
	}
	if err := t.call(ctx, request{Type: "save", File: saveFile}); err != nil {
		return err
	}
	f, failure := t.openFile(saveFile)
	if failure != nil {
		return t.failed(failure)
	}
	defer func() { _ = f.Close() }()
	out := &watched{w: w}
	err := t.copyWeights(ctx, out, f)
	switch {
	case err == nil || out.err != nil || ctx.Err() != nil:
		return err
	case errors.Is(err, errNotFinite):
		return t.failed(fail(KindDiverged, "the script's weights are not finite: "+err.Error(), hints[KindDiverged]))
	}
	return t.failed(fail(KindOutput, "the weights that the script saved cannot be used: "+err.Error(), ""))
}

// watched remembers the failure of the stream we write to: it is not the program's.
type watched struct {
	w   io.Writer
	err error
}

func (w *watched) Write(p []byte) (int, error) {
	n, err := w.w.Write(p)
	if err != nil {
		w.err = err
	}
	return n, err
}

var errNotFinite = errors.New("not finite")

// copyWeights copies weights of the trainer's layout, all finite, tile by tile.
func (t *Trainer) copyWeights(ctx context.Context, dst io.Writer, src io.Reader) error {
	r, err := safetensors.NewReader(src)
	if err != nil {
		return err
	}
	if err := safetensors.Compare(t.layout, r.Tensors()); err != nil {
		return err
	}
	w, err := safetensors.NewWriter(dst, t.layout, nil)
	if err != nil {
		return err
	}
	tile := make([]byte, bytesPerTile)
	for {
		tensor, body, err := r.Next()
		if errors.Is(err, io.EOF) {
			return w.Close()
		}
		if err == nil {
			err = copyTensor(ctx, w, tensor, body, tile)
		}
		if err != nil {
			return err
		}
	}
}

// copyTensor copies the data of one F32 tensor.
func copyTensor(ctx context.Context, w io.Writer, tensor safetensors.Tensor, body io.Reader, tile []byte) error {
	for at := 0; ; {
		if err := ctx.Err(); err != nil {
			return err
		}
		n, err := io.ReadFull(body, tile)
		for i := 0; i+4 <= n; i += 4 {
			if binary.LittleEndian.Uint32(tile[i:])&0x7f800000 == 0x7f800000 {
				return domainNotFinite(tensor.Name, at+i/4)
			}
		}
		at += n / 4
		if _, werr := w.Write(tile[:n]); werr != nil {
			return werr
		}
		if errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) {
			return nil // the reader has checked that the tensor is whole
		}
		if err != nil {
			return err
		}
	}
}

func domainNotFinite(name string, at int) error {
	return &domain.Error{Kind: domain.KindInvalid, Why: fmt.Sprintf("tensor %s, value %d", show(name), at), Next: "use weights of an earlier round", Err: errNotFinite}
}
