// Package dataset turns a table with a label column, IDX files of pictures, or text into the packed form that machines train
// from, and reads rows of that form back by number.
//
// ParseCSV reads a comma-separated file, plain or gzip, and refuses what it cannot understand by line and column. Pack
// splits the rows into a training and a held-out part, standardises them by statistics of the training part, and writes
// one blob with everything in it. Open reads the blob's header, Set.Rows and Set.Heldout read rows.
// FormOf says how one more row of the file becomes such a row.
//
// It decides no order of training (domain/permute and domain/run do) and knows nothing of models. The CLI packs at
// submit; agent/trainer/builtin reads.
//
// Dependency: agnivade/levenshtein finds the nearest column name; it is small, pure and already used by the CLI.
package dataset

// Limits of a data set.
const (
	MaxColumns     = 1 << 16 // features and label; a wider table is an image in the wrong format
	MaxRows        = 1 << 26 // rows of one table
	MaxCells       = 1 << 27 // rows × features: 1 GiB of float64 while packing
	MaxClasses     = 10_000  // distinct labels; more is a regression target or an id
	MaxLineBytes   = 4 << 20 // MaxColumns numbers of full length
	MaxTextBytes   = 8 << 30 // decompressed CSV, so that a small gzip cannot run for ever
	MaxNameBytes   = 256     // a column or class name
	MaxHeaderBytes = 8 << 20 // the packed form's JSON header

	MaxCategories  = 1000      // different words of one column: more is an id or free text
	MaxCorpusBytes = 256 << 20 // of one text
	maxTextFiles   = 1 << 18   // files of one folder
	maxIDXBytes    = 1 << 30   // values of one IDX file
)
