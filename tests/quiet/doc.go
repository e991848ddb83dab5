// Package quiet holds the test that normal work writes nothing that anybody would
// have to read.
package quiet
