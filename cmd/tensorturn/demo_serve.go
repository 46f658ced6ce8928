package main

import (
	"bytes"
	"context"
	"encoding/json"
	"io"
	"math"
	"net/http"

	"tensorturn/broker/gateway"
	"tensorturn/domain"
	"tensorturn/domain/dataset"
	"tensorturn/projections/models"
)

// The demo's deployed model and what it is asked.
const (
	demoModel    = "digits"
	demoAsked    = 10 // rows in its one request
	demoAnswered = 8  // of them named rightly: more than chance would, less than luck asks for
)

// demoServed is what the deployed model said.
type demoServed struct {
	URL      string   `json:"url"`
	OK       bool     `json:"prediction_ok"` // one HTTPS request with a key: the right form, and most of its rows named rightly
	Labels   []string `json:"predicted"`
	Truth    []string `json:"truth"`
	Used     int      `json:"members_used"`
	WrongKey int      `json:"wrong_key_status"` // HTTP status of the same request with a key that nobody made
}

// demoServe deploys the run and asks it over HTTPS as any client would: with the hub's CA and a key for the model.
func (a *app) demoServe(ctx context.Context, cl *client, id domain.RunID, members int) (d demoServed, err error) {
	var m models.Model
	if err := cl.call(ctx, http.MethodPost, "/api/v1/models", gateway.DeployModel{Run: string(id), Name: demoModel}, &m); err != nil {
		return d, err
	}
	var k gateway.CreatedKey
	if err := cl.call(ctx, http.MethodPost, "/api/v1/keys", gateway.CreateKey{Model: demoModel}, &k); err != nil {
		return d, err
	}
	d.URL = cl.ctx.URL + "/v2/models/" + demoModel
	a.say("deployed as %s; asking it with a key", d.URL)
	body, truth, err := demoQuestion()
	if err != nil {
		return d, err
	}
	d.Truth = truth
	code, said, err := demoAsk(ctx, cl, d.URL, k.Secret, body)
	if err != nil {
		return d, err
	}
	d.read(said)
	right := 0
	for i, l := range d.Labels {
		if i < len(truth) && l == truth[i] {
			right++
		}
	}
	d.OK = code == http.StatusOK && len(d.Labels) == demoAsked && right >= demoAnswered && said.sums() && d.Used == members
	wrong := []byte(k.Secret)
	wrong[len(wrong)/2] ^= 1 // still a letter or digit, or no key at all: refused either way
	d.WrongKey, _, err = demoAsk(ctx, cl, d.URL, string(wrong), body)
	return d, err
}

// demoQuestion is a V2 request for the first rows of the data, and their labels.
func demoQuestion() (body []byte, truth []string, err error) {
	t, err := dataset.ParseCSV(bytes.NewReader(digits), dataset.CSVOptions{})
	if err != nil {
		return nil, nil, err
	}
	width := len(t.Columns)
	x := make([][]float64, demoAsked)
	for i := range x {
		x[i], truth = t.Values[i*width:(i+1)*width], append(truth, t.Classes[t.Labels[i]])
	}
	body, err = json.Marshal(map[string]any{"id": "demo", "inputs": []any{map[string]any{"name": "input", "shape": []int{demoAsked, width}, "datatype": "FP32", "data": x}}})
	return body, truth, err
}

// demoSaid is a V2 answer.
type demoSaid struct {
	Parameters struct {
		Used int `json:"members_used"`
	} `json:"parameters"`
	Outputs []struct {
		Name string          `json:"name"`
		Data json.RawMessage `json:"data"`
	} `json:"outputs"`
}

func (d *demoServed) read(s demoSaid) {
	d.Used = s.Parameters.Used
	for _, o := range s.Outputs {
		if o.Name == "label" {
			json.Unmarshal(o.Data, &d.Labels) // an answer of another form has no labels, and is not right
		}
	}
}

// sums reports whether all probabilities together are one for each row.
func (s demoSaid) sums() bool {
	total := 0.0
	for _, o := range s.Outputs {
		var p []float64
		if o.Name == "probabilities" && json.Unmarshal(o.Data, &p) == nil {
			for _, v := range p {
				total += v
			}
		}
	}
	return math.Abs(total-demoAsked) < 1e-3
}

// demoAsk sends one inference request with a key of its own.
func demoAsk(ctx context.Context, cl *client, url, key string, body []byte) (code int, s demoSaid, err error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, url+"/infer", bytes.NewReader(body))
	if err != nil {
		return 0, s, err
	}
	req.Header.Set("Authorization", "Bearer "+key)
	req.Header.Set("Content-Type", "application/json")
	resp, err := cl.http.Do(req)
	if err != nil {
		return 0, s, unreachable(cl.ctx.URL, err)
	}
	defer resp.Body.Close()
	b, err := io.ReadAll(io.LimitReader(resp.Body, 1<<20))
	if err != nil {
		return 0, s, err
	}
	if resp.StatusCode == http.StatusOK {
		err = json.Unmarshal(b, &s)
	}
	return resp.StatusCode, s, err
}
