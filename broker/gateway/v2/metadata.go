package v2

import (
	"encoding/json"
	"fmt"
	"net/http"
	"strconv"

	"tensorturn/broker/inference"
	"tensorturn/domain/dataset"
)

// The names of tensors: one in, two out.
const (
	inputName = "input"         // FP32 [-1, features]: rows as they stand in the table
	probsName = "probabilities" // FP32 [-1, classes]
	labelName = "label"         // BYTES [-1]: the class that is named
)

// binaryExtension is the name of the binary tensor extension.
const binaryExtension = "binary_tensor_data"

func answer(w http.ResponseWriter, v any) {
	b, err := json.Marshal(v)
	if err != nil {
		panic(err)
	}
	w.Header().Set("Content-Type", "application/json")
	w.Header().Set("Content-Length", strconv.Itoa(len(b)))
	w.Write(b)
}

func (a *API) live(w http.ResponseWriter, _ *http.Request) {
	answer(w, map[string]bool{"live": true})
}

// ready says both words: the specification's text has "live" here, servers have "ready".
func (a *API) ready(w http.ResponseWriter, _ *http.Request) {
	if err := a.cfg.Ready(); err != nil {
		refuseUntil(w, http.StatusServiceUnavailable, err.Error(), retryAfter)
		return
	}
	answer(w, map[string]bool{"live": true, "ready": true})
}

func (a *API) server(w http.ResponseWriter, r *http.Request) {
	if _, ok := a.caller(w, r); ok {
		answer(w, serverMetadata{"tensorturn", a.cfg.Server, []string{binaryExtension}})
	}
}

type serverMetadata struct {
	Name       string   `json:"name"`
	Version    string   `json:"version"`
	Extensions []string `json:"extensions"`
}

type modelMetadata struct {
	Name     string           `json:"name"`
	Versions []string         `json:"versions"`
	Platform string           `json:"platform"`
	Inputs   []tensorMetadata `json:"inputs"`
	Outputs  []tensorMetadata `json:"outputs"`
}

type tensorMetadata struct {
	Name       string          `json:"name"`
	Datatype   string          `json:"datatype"`
	Shape      []int           `json:"shape"`
	Parameters *inputParameter `json:"parameters,omitempty"`
}

// inputParameter tells how rows as they stand in the table come, beside the features of the shape.
type inputParameter struct {
	Rows    string           `json:"rows"` // their shape and what they come as, for people
	Missing string           `json:"missing"`
	Columns []columnMetadata `json:"columns"`
	Left    int              `json:"columns_left_out,omitempty"`
}

// columnMetadata is one column of the table.
type columnMetadata struct {
	Name       string   `json:"name"`
	Kind       string   `json:"kind"` // number or category
	Categories []string `json:"categories,omitempty"`
	Left       int      `json:"categories_left_out,omitempty"`
}

// maxTold bounds the names and words of a model's metadata, in bytes: 64 columns of 64 words of 16 bytes.
const maxTold = 64 << 10

// describeForm names the columns of the table until maxTold, and says how many are left out.
func describeForm(f *dataset.Form) *inputParameter {
	if f == nil {
		return nil
	}
	p := &inputParameter{Rows: fmt.Sprintf("[-1,%d] of BYTES, or of numbers where all are", len(f.Columns)), Missing: "refused", Columns: []columnMetadata{}}
	if f.Fills {
		p.Missing = "filled"
	}
	room := maxTold
	for i, c := range f.Columns {
		if room -= len(c.Name); room < 0 {
			p.Left = len(f.Columns) - i
			break
		}
		m := columnMetadata{Name: c.Name, Kind: "number"}
		if c.Words != nil {
			m.Kind = "category"
		}
		for k, word := range c.Words {
			if room -= len(word); room < 0 {
				m.Left = len(c.Words) - k
				break
			}
			m.Categories = append(m.Categories, word)
		}
		p.Columns = append(p.Columns, m)
	}
	return p
}

func (a *API) metadata(w http.ResponseWriter, r *http.Request, name, version string) {
	t, ok := a.target(w, r, name, version, false)
	if !ok {
		return
	}
	f, fail := a.describe(r, t)
	if fail != nil {
		fail.write(w)
		return
	}
	m := modelMetadata{Name: name, Platform: "tensorturn_" + t.version.Kind,
		Inputs:  []tensorMetadata{{inputName, "FP32", []int{-1, len(f.Columns)}, describeForm(f.Form)}},
		Outputs: []tensorMetadata{{probsName, "FP32", []int{-1, len(f.Classes)}, nil}, {labelName, textType, []int{-1}, nil}}}
	for _, v := range t.model.Versions {
		m.Versions = append(m.Versions, strconv.Itoa(v.Version))
	}
	answer(w, m)
}

func (a *API) modelReady(w http.ResponseWriter, r *http.Request, name, version string) {
	t, ok := a.target(w, r, name, version, false)
	if !ok {
		return
	}
	if _, fail := a.describe(r, t); fail != nil {
		fail.write(w)
		return
	}
	answer(w, struct {
		Name  string `json:"name"`
		Ready bool   `json:"ready"`
	}{name, true})
}

// describe makes the version ready to answer.
func (a *API) describe(r *http.Request, t target) (f inference.Facts, failed *fail) {
	m, b, failed := a.backend(t)
	if failed != nil {
		return f, failed
	}
	f, err := b.Describe(r.Context(), m.version)
	if err != nil {
		return f, a.failOf(err)
	}
	m.facts.Store(&f)
	return f, nil
}

// backend finds who answers for a version.
func (a *API) backend(t target) (*made, inference.Backend, *fail) {
	m, err := a.made.get(t, a.cfg.Version)
	if err != nil {
		return nil, nil, a.failOf(err)
	}
	b := a.cfg.Backend(t.version.Where)
	if b == nil {
		return nil, nil, &fail{http.StatusServiceUnavailable, "nobody answers for models on the " + string(t.version.Where), 5 * retryAfter}
	}
	return m, b, nil
}
