package run

import (
	"fmt"
	"reflect"

	"tensorturn/domain"
)

// checkData refuses data that no model can learn from, with the reason. Fewer samples than a batch are allowed: the
// batch is then what there is.
func checkData(s *Spec, d *Dataset) error {
	if s.Trainer == Process {
		return checkProcessData(s, d)
	}
	refuse := func(why, next string) error { return domain.Invalid("check data", why, next) }
	switch {
	case d.Samples < 0 || d.Heldout < 0:
		return refuse(fmt.Sprintf("%d training and %d held-out samples", d.Samples, d.Heldout), "pack the data again")
	case d.Samples == 0:
		return refuse("the data set is empty", "give a file with at least two samples of at least two classes")
	case d.Samples == 1:
		return refuse("one training sample is not enough to learn from", "give more samples or hold fewer out")
	case d.Samples > MaxSamples:
		return refuse(fmt.Sprintf("%d samples, at most %d are possible", d.Samples, MaxSamples), "give a part of the data")
	case d.Task != s.Data.Task:
		return refuse(fmt.Sprintf("it is packed for the task %q, data.task is %q", domain.Clip(d.Task, 40), s.Data.Task), "pack the data again")
	case d.Task == TaskRegression && d.Classes != 0:
		return refuse(fmt.Sprintf("%d classes of a number", d.Classes), "pack the data again")
	case d.Task == TaskRegression:
	case d.Classes < 2:
		return refuse(fmt.Sprintf("%d class: there is nothing to tell apart", d.Classes), "check that data.label names the right column")
	case d.Classes > MaxClasses:
		return refuse(fmt.Sprintf("%d classes, at most %d are possible", d.Classes, MaxClasses), "check that data.label names a column of classes, not of measurements")
	case d.Features < 1 || d.Features > MaxFeatures:
		return refuse(fmt.Sprintf("%d feature columns, allowed are 1 to %d", d.Features, MaxFeatures), "check the file's columns")
	case d.Block < 1:
		return refuse(fmt.Sprintf("shuffle blocks of %d samples", d.Block), "pack the data again")
	}
	if _, err := domain.ParseDigest(string(d.Blob)); err != nil {
		return refuse("the packed data has no digest", "pack the data again")
	}
	return first(checkTextData(s, d), checkShape(s, d), checkMembersData(s, d))
}

// checkTextData holds text to the model that it is packed for.
func checkTextData(s *Spec, d *Dataset) error {
	want := 0
	switch {
	case s.Model.Kind == ModelTransformer:
		want = s.Model.Context
	case s.Data.Format == FormatText:
		want = 1
	}
	if d.Predicts != want || want > 0 && d.Features != s.Model.Context {
		return domain.Invalid("check data", fmt.Sprintf("samples of %d values predict %d bytes, the model sees %d and predicts %d", d.Features, d.Predicts, s.Model.Context, want), "pack the data again")
	}
	return nil
}

// checkShape follows a row through the layers.
func checkShape(s *Spec, d *Dataset) error {
	for _, n := range []int{d.Channels, d.Height, d.Width} {
		if n < 0 || n > MaxFeatures {
			return domain.Invalid("check data", fmt.Sprintf("pictures of %d × %d × %d", d.Channels, d.Height, d.Width), "pack the data again")
		}
	}
	if p := d.Picture(); p.Size() != d.Features {
		return domain.Invalid("check data", fmt.Sprintf("a row of %d values is no picture of %d × %d × %d", d.Features, p.Channels, p.Height, p.Width), "set data.shape to [height, width] or [channels, height, width] of a row")
	}
	_, _, err := s.Model.Shapes(d.Picture())
	return err
}

// Picture is the shape of a row.
func (d *Dataset) Picture() Picture {
	if d.Height == 0 {
		return Picture{d.Features, 1, 1}
	}
	return Picture{d.Channels, d.Height, d.Width}
}

// checkMembersData refuses ensembles of what does not vote.
func checkMembersData(s *Spec, d *Dataset) error {
	if !s.IsEnsemble() {
		return nil
	}
	switch {
	case d.Task == TaskRegression:
		return domain.Invalid("check data", "members of an ensemble name classes, and data.task is regression", "set mode: fused")
	case d.Predicts > 1:
		return domain.Invalid("check data", "members of an ensemble predict one thing a sample, and a transformer predicts every byte", "set mode: fused, or model.kind: mlp")
	case s.Ensemble.Recipe.Features != 1 && (s.Model.Kind != ModelMLP || d.Predicts > 0):
		return domain.Invalid("check data", "ensemble.recipe.features hides columns, which only an mlp over a table has", "remove ensemble.recipe.features")
	}
	return nil
}

// chunkCount is the number of chunks without overflow: both factors are limited before it is called.
func chunkCount(s *Spec, d *Dataset) int64 {
	return int64(s.Epochs) * int64((d.Samples+s.Chunk-1)/s.Chunk)
}

// checkSize refuses a run whose chunk table would not fit, with the numbers, and a round size that is missing.
func checkSize(s *Spec, d *Dataset) error {
	if total := chunkCount(s, d); total > MaxChunks {
		per := max(MaxChunks/int64(s.Epochs), 1)
		least := (int64(d.Samples) + per - 1) / per
		least = (least + int64(s.Batch) - 1) / int64(s.Batch) * int64(s.Batch)
		return domain.Invalid(opSpec,
			fmt.Sprintf("chunk is %d: %d samples × %d epochs make %d chunks, at most %d are possible", s.Chunk, d.Samples, s.Epochs, total, MaxChunks),
			fmt.Sprintf("set chunk to %d or more", least))
	}
	return within("round.chunks", s.Round.Chunks, 1, MaxRoundChunks)
}

// checkResolved refuses a spec that Resolve would still change: a run records every default in force.
func checkResolved(s *Spec, d *Dataset) error {
	r, err := Resolve(*s, *d)
	if err != nil {
		return err
	}
	if !reflect.DeepEqual(*s, r) {
		return domain.Invalid(opSpec, "the spec has defaults that are not written out", "resolve it against the data first")
	}
	return nil
}
