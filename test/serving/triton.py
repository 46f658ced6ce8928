"""Asks a deployed digits model with NVIDIA's client for the Open Inference Protocol, unmodified.

Usage: triton.py HOST:PORT CA.pem MODEL KEY ROWS.csv. Prints one JSON object; exits 0 when every check holds.
"""

import json
import sys

import gevent.ssl
import numpy as np
import tritonclient.http as http
from tritonclient.utils import InferenceServerException

url, ca, model, key, rows = sys.argv[1:6]
table = np.loadtxt(rows, delimiter=",", dtype=np.float32)
x, labels = table[:, :-1], table[:, -1].astype(int)


def client(cafile):
    return http.InferenceServerClient(
        url, ssl=True, ssl_context_factory=lambda: gevent.ssl.create_default_context(cafile=cafile)
    )


def refused(call):
    try:
        call()
    except InferenceServerException as e:
        return [e.status(), e.message()]
    return ["200", ""]


def inputs(array, datatype, binary):
    i = http.InferInput("input", list(array.shape), datatype)
    i.set_data_from_numpy(array, binary_data=binary)
    return [i]


auth = {"Authorization": "Bearer " + key}
c = client(ca)
said = {
    "live": c.is_server_live(),
    "ready": c.is_server_ready(),
    "model_ready": c.is_model_ready(model, headers=auth),
    "version_ready": c.is_model_ready(model, "1", headers=auth),
    "no_version_ready": c.is_model_ready(model, "99", headers=auth),
    "server": c.get_server_metadata(headers=auth),
    "metadata": c.get_model_metadata(model, headers=auth),
}

# JSON and bytes, in and out, must say the same.
answers = {}
for name, binary_in, binary_out in [("text", False, False), ("bytes", True, True), ("mixed", True, False)]:
    wanted = [http.InferRequestedOutput("probabilities", binary_data=binary_out), http.InferRequestedOutput("label", binary_data=binary_out)]
    r = c.infer(model, inputs(x, "FP32", binary_in), outputs=wanted, request_id="42", headers=auth)
    p, l = r.as_numpy("probabilities"), r.as_numpy("label")
    answers[name] = (p, [int(v) for v in l])
    said[name] = {"shape": list(p.shape), "id": r.get_response()["id"], "version": r.get_response()["model_version"],
                  "sums": bool(np.allclose(p.sum(axis=1), 1, atol=1e-5)), "accuracy": float(np.mean(np.array(answers[name][1]) == labels))}
said["equal"] = bool(all(np.array_equal(answers["text"][0], a[0]) and answers["text"][1] == a[1] for a in answers.values()))

# Without a choice of outputs, and with other datatypes that hold the pixels exactly.
r = c.infer(model, inputs(x[:5], "FP32", True), headers=auth)
said["default"] = [o["name"] for o in r.get_response()["outputs"]]
said["types"] = {}
for datatype, kind in [("FP64", np.float64), ("UINT8", np.uint8), ("INT32", np.int32), ("INT64", np.int64), ("FP16", np.float16)]:
    r = c.infer(model, inputs(x[:20].astype(kind), datatype, True), headers=auth)
    said["types"][datatype] = bool(np.array_equal(r.as_numpy("probabilities"), answers["text"][0][:20]))
a = c.async_infer(model, inputs(x[:1], "FP32", True), headers=auth)
said["async"] = int(a.get_result().as_numpy("label")[0]) == answers["text"][1][0]

wrong = {"Authorization": "Bearer " + key[:-1] + ("a" if key[-1] != "a" else "b")}
said["wrong_key"] = refused(lambda: c.infer(model, inputs(x[:1], "FP32", True), headers=wrong))
said["no_key"] = refused(lambda: c.infer(model, inputs(x[:1], "FP32", True)))
said["other_model"] = refused(lambda: c.infer("other", inputs(x[:1], "FP32", True), headers=auth))
said["bad_shape"] = refused(lambda: c.infer(model, inputs(x[:1, :5], "FP32", True), headers=auth))
try:
    client(None).is_server_live()
    said["foreign_ca"] = "trusted"
except Exception as e:  # of the TLS library
    said["foreign_ca"] = type(e).__name__

print(json.dumps(said))
