package process

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"math"

	"tensorturn/domain"
	"tensorturn/domain/safetensors"
)

// Predict implements trainer.Trainer. The program prepares its inputs itself: features go to it as they are given.
func (t *Trainer) Predict(ctx context.Context, features []float32) ([]float32, error) {
	const op = "predict"
	if err := t.usable(ctx); err != nil {
		return nil, err
	}
	width, classes := t.job.Dataset.Features, t.job.Dataset.Classes
	switch {
	case t.alone() && len(t.job.Spec.Predict) == 0:
		return nil, domain.Invalid(op, "the script gives no predictions", "set predict in the spec to a command that does")
	case !t.alone() && !t.hello.Predicts:
		return nil, domain.Invalid(op, "the script gives no predictions", "give predict= to tensorturn.join")
	case width < 1 || classes < 1:
		return nil, domain.Invalid(op, "the spec does not say how many values a prediction takes and gives", "set data.features and data.classes in the spec")
	case len(features) == 0 || len(features)%width != 0:
		return nil, domain.Invalid(op, fmt.Sprintf("%d values are no whole rows of %d features", len(features), width), "give every feature of every row")
	case len(features) > maxPredicts || len(features)/width*classes > maxPredicts:
		return nil, domain.Invalid(op, fmt.Sprintf("%d rows are too many at once", len(features)/width), "ask for fewer rows")
	}
	rows := int64(len(features) / width)
	if err := t.writeInput(features, rows, int64(width)); err != nil {
		return nil, domain.Unavailable(op, "the input cannot be written", "check the disk of the agent's directory", err)
	}
	if err := t.root.RemoveAll(outputFile); err != nil { // an answer that is not written must not be the one before
		return nil, domain.Unavailable(op, "the last answer cannot be removed", "check the disk of the agent's directory", err)
	}
	if err := t.askPredict(ctx); err != nil {
		return nil, err
	}
	out, err := t.readOutput(rows, int64(classes))
	switch {
	case errors.Is(err, errNotFinite): // these rows are too much for the model; others are not
		return nil, domain.Invalid(op, "the script's prediction cannot be used: "+err.Error(), "check the values of the rows")
	case err != nil:
		return nil, t.failed(fail(KindOutput, "the script's prediction cannot be used: "+err.Error(), ""))
	}
	return out, nil
}

// askPredict has the program predict from the input file into the output file. Rows that it refuses are domain.KindInvalid, and
// it goes on.
func (t *Trainer) askPredict(ctx context.Context) error {
	if t.alone() {
		err := t.predictAlone(ctx, inputFile)
		var f *Failure
		if errors.As(err, &f) && ctx.Err() == nil {
			t.broken = nil // the next question starts its command anew
		}
		return err
	}
	if err := t.ask(request{Type: "predict", Input: inputFile, Output: outputFile}); err != nil {
		return err
	}
	m, err := t.receive(ctx)
	switch {
	case err != nil:
		return err
	case m.Type == "ok":
		return nil
	case m.Type == "refused":
		return domain.Invalid("predict", "the script refuses these rows: "+domain.Clip(m.Text, 180), "check the values of the rows")
	}
	return t.failed(fail(KindProtocol, fmt.Sprintf("the answer to predict is %s", show(m.Type)), ""))
}

// Broken reports whether the program may only be closed. It belongs to the goroutine that the trainer serves.
func (t *Trainer) Broken() bool { return t.broken != nil }

func (t *Trainer) writeInput(features []float32, rows, width int64) error {
	f, err := createFile(t.root, inputFile)
	if err != nil {
		return err
	}
	w, err := safetensors.NewWriter(f, []safetensors.Tensor{{Name: inputName, DType: safetensors.F32, Shape: []int64{rows, width}}}, nil)
	for err == nil && len(features) > 0 {
		n := min(len(features), bytesPerTile/4)
		b := make([]byte, 0, 4*n)
		for _, v := range features[:n] {
			b = binary.LittleEndian.AppendUint32(b, math.Float32bits(v))
		}
		features = features[n:]
		_, err = w.Write(b)
	}
	if err == nil {
		err = w.Close()
	}
	return errors.Join(err, f.Close())
}

// readOutput reads [rows, classes] finite values.
func (t *Trainer) readOutput(rows, classes int64) ([]float32, error) {
	f, failure := t.openFile(outputFile)
	if failure != nil {
		return nil, failure
	}
	defer func() { _ = f.Close() }()
	r, err := safetensors.NewReader(f)
	if err != nil {
		return nil, err
	}
	want := []safetensors.Tensor{{Name: outputName, DType: safetensors.F32, Shape: []int64{rows, classes}}}
	if err := safetensors.Compare(want, r.Tensors()); err != nil {
		return nil, err
	}
	_, body, err := r.Next()
	if err != nil {
		return nil, err
	}
	b, err := io.ReadAll(body)
	if err != nil {
		return nil, err
	}
	out := make([]float32, len(b)/4)
	for i := range out {
		out[i] = math.Float32frombits(binary.LittleEndian.Uint32(b[4*i:]))
		if math.IsNaN(float64(out[i])) || math.IsInf(float64(out[i]), 0) {
			return nil, fmt.Errorf("value %d: %w", i, errNotFinite)
		}
	}
	_, _, err = r.Next()
	if !errors.Is(err, io.EOF) {
		return nil, err
	}
	return out, nil
}

// writeRows tells a member which sample to train in the place of each.
func (t *Trainer) writeRows() error {
	f, err := createFile(t.root, rowsFile)
	if err != nil {
		return err
	}
	w, err := safetensors.NewWriter(f, []safetensors.Tensor{{Name: rowsName, DType: safetensors.I32, Shape: []int64{int64(len(t.job.Rows))}}}, nil)
	for i := 0; err == nil && i < len(t.job.Rows); i += bytesPerTile / 4 {
		b := make([]byte, 0, bytesPerTile)
		for _, row := range t.job.Rows[i:min(i+bytesPerTile/4, len(t.job.Rows))] {
			b = binary.LittleEndian.AppendUint32(b, uint32(row))
		}
		_, err = w.Write(b)
	}
	if err == nil {
		err = w.Close()
	}
	return errors.Join(err, f.Close())
}
