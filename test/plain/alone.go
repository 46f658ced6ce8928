package plain

import (
	"encoding/binary"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"strconv"
)

// alone is a program that knows nothing of the protocol but its environment: it trains a member, writes its weights and
// ends; or it predicts (PROTOCOL.md section 9).
func alone() {
	seed, err := strconv.ParseUint(os.Getenv("TENSORTURN_SEED"), 10, 64)
	if err != nil {
		panic(err)
	}
	if _, ok := os.LookupEnv("TENSORTURN_MODEL"); ok {
		answer()
		return
	}
	p := &program{dir: os.Getenv("TENSORTURN_OUTPUT_DIR"), model: newModel(seed)}
	n, batch := number("SAMPLES"), number("BATCH")
	for epoch := range number("EPOCHS") {
		for rows := Order(seed, epoch, n, 0); len(rows) > 0; {
			b := rows[:min(batch, len(rows))]
			rows = rows[len(b):]
			fmt.Printf("loss %.4f\n", p.model.step(b))
		}
	}
	p.write("model.safetensors", "w", p.model.shape(), p.model.w)
}

// answer predicts what it is asked, or the held-out rows with what they are.
func answer() {
	p := &program{model: newModel(0)}
	copy(p.model.w, p.read(os.Getenv("TENSORTURN_MODEL")))
	if in, ok := os.LookupEnv("TENSORTURN_PREDICT_INPUT"); ok {
		p.predict(ask{Input: in, Output: os.Getenv("TENSORTURN_PREDICT_OUTPUT")})
		return
	}
	n := number("HELDOUT")
	var labels, probabilities []byte
	for i := range n {
		x, label := sample(-1 - i)
		labels = binary.LittleEndian.AppendUint32(labels, uint32(label))
		for _, q := range p.model.forward(x) {
			probabilities = binary.LittleEndian.AppendUint32(probabilities, math.Float32bits(float32(q)))
		}
	}
	head := fmt.Sprintf(`{"labels":{"dtype":"I32","shape":[%d],"data_offsets":[0,%d]},"probabilities":{"dtype":"F32","shape":[%d,%d],"data_offsets":[%d,%d]}}`,
		n, 4*n, n, Classes, 4*n, 4*n*(1+Classes))
	b := binary.LittleEndian.AppendUint64(nil, uint64(len(head)))
	b = append(append(append(b, head...), labels...), probabilities...)
	if err := os.WriteFile(filepath.Clean(os.Getenv("TENSORTURN_PREDICT_OUTPUT")), b, 0o600); err != nil {
		panic(err)
	}
}
