//go:build bench

package bench

import (
	"errors"
	"fmt"
	"image/color"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"gonum.org/v1/plot"
	"gonum.org/v1/plot/plotter"
	"gonum.org/v1/plot/vg"
	"gonum.org/v1/plot/vg/draw"
)

// palette and shapes together tell the contestants apart.
var (
	palette = []color.Color{
		color.RGBA{31, 119, 180, 255}, color.RGBA{214, 39, 40, 255}, color.RGBA{44, 160, 44, 255}, color.RGBA{255, 127, 14, 255},
		color.RGBA{148, 103, 189, 255}, color.RGBA{140, 86, 75, 255}, color.RGBA{227, 119, 194, 255}, color.RGBA{23, 190, 207, 255},
		color.RGBA{188, 189, 34, 255},
	}
	shapes = []draw.GlyphDrawer{
		draw.CircleGlyph{}, draw.BoxGlyph{}, draw.PyramidGlyph{}, draw.RingGlyph{}, draw.SquareGlyph{}, draw.TriangleGlyph{}, draw.CrossGlyph{},
	}
)

// plot draws the figures that a reader compares at a glance.
func (m *match) plot(dir string) error {
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return err
	}
	at := func(name string) string { return filepath.Join(dir, name+".svg") }
	return errors.Join(
		m.dots(at("cycle"), "Lock and unlock, one goroutine", "ms, logarithmic", "cycle-1", 0, 1),
		m.throughput(at("throughput")),
		m.dots(at("handover"), "Hand-over to a waiting process", "ms, logarithmic", "handover", 1, 2),
		m.dots(at("waiters"), "Many waiters: requests to the server", "requests, logarithmic (1 for fewer)", "waiters", 2, 3),
		m.dots(at("busy"), "A try of a lock that is held", "ms, logarithmic", "busy", 0),
	)
}

// dots draws columns of a row: a line for each contestant, the first on top.
func (m *match) dots(path, title, unit, id string, columns ...int) error {
	p := plot.New()
	p.Title.Text, p.X.Label.Text = title, unit
	p.Title.Padding, p.Legend.Padding = vg.Points(8), vg.Points(2)
	p.Y.Label.Text = " " // the longest name needs its room
	p.X.Scale, p.X.Tick.Marker = plot.LogScale{}, plot.LogTicks{Prec: -1}
	p.Add(plotter.NewGrid())
	lines := slices.Clone(m.results[id])
	slices.Reverse(lines)
	var names []string
	for _, l := range lines {
		names = append(names, l.name)
	}
	p.NominalY(names...)
	for i, column := range columns {
		var points plotter.XYs
		for y, l := range lines {
			x := l.values[column]
			if id == "waiters" {
				x = max(x, 1) // none at all has no place on this axis
			}
			points = append(points, plotter.XY{X: x, Y: float64(y)})
		}
		s, err := plotter.NewScatter(points)
		if err != nil {
			return err
		}
		s.GlyphStyle = draw.GlyphStyle{Color: palette[i], Radius: vg.Points(3.5), Shape: shapes[i]}
		p.Add(s)
		p.Legend.Add(rowOf(id).columns[column].name, s)
	}
	p.Legend.Top = true
	p.Y.Min, p.Y.Max = -0.5, float64(len(lines))+0.5*float64(len(columns))
	within(&p.X)
	return p.Save(7*vg.Inch, vg.Length(len(lines)+3)*0.28*vg.Inch, path)
}

// within makes an axis end at powers of ten.
func within(a *plot.Axis) {
	a.Min = math.Pow(10, math.Floor(math.Log10(a.Min)))
	a.Max = math.Pow(10, math.Ceil(math.Log10(a.Max)))
}

// throughput draws cycles a second over goroutines.
func (m *match) throughput(path string) error {
	p := plot.New()
	p.Title.Text = "Lock and unlock, many goroutines, distinct names"
	p.X.Label.Text, p.Y.Label.Text = "goroutines", "cycles a second"
	p.Title.Padding, p.Legend.Padding = vg.Points(8), vg.Points(3)
	p.X.Scale, p.Y.Scale = plot.LogScale{}, plot.LogScale{}
	p.Y.Tick.Marker = plot.LogTicks{Prec: -1}
	sizes := []float64{16, 64, 256}
	var ticks plot.ConstantTicks
	for _, n := range sizes {
		ticks = append(ticks, plot.Tick{Value: n, Label: fmt.Sprint(n)})
	}
	p.X.Tick.Marker = ticks
	p.Add(plotter.NewGrid())
	for i, l := range m.results["cycle-16"] {
		if strings.HasSuffix(l.name, " memory") {
			continue // far above, and of one process only
		}
		var points plotter.XYs
		for _, n := range sizes {
			points = append(points, plotter.XY{X: n, Y: m.value(fmt.Sprint("cycle-", n), l.name)})
		}
		graph, dots, err := plotter.NewLinePoints(points)
		if err != nil {
			return err
		}
		graph.Color, dots.Color = palette[i%len(palette)], palette[i%len(palette)]
		dots.Shape = shapes[i%len(shapes)]
		graph.Width = vg.Points(1)
		if l.name == leaseName || l.name == advisoryName {
			graph.Width = vg.Points(2.5)
		}
		if l.name == rawName || l.name == rawWideName {
			graph.Color, dots.Color = color.Gray{Y: 120}, color.Gray{Y: 120}
			graph.Dashes = []vg.Length{vg.Points(4), vg.Points(3)}
		}
		p.Add(graph, dots)
		p.Legend.Add(l.name, graph, dots)
	}
	within(&p.Y)
	p.X.Min, p.X.Max = 14, 2600 // room for the legend
	p.Legend.Top = true
	return p.Save(8*vg.Inch, 5.5*vg.Inch, path)
}

// value is the first figure of a contestant in a row.
func (m *match) value(id, name string) float64 {
	for _, l := range m.results[id] {
		if l.name == name {
			return l.values[0]
		}
	}
	return math.NaN()
}
