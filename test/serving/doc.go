// Package serving tests deployed models on a real hub over HTTPS, as their users have them: versions that come and go under
// load, keys that end, a hub that restarts, and a client that nobody here wrote (make test-v2-client gives it a Python with
// tritonclient; without one that test is skipped).
package serving
