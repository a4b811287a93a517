package browser_test

import (
	"bytes"
	"encoding/base64"
	"flag"
	"image"
	"image/color"
	"image/draw"
	"image/png"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"testing"

	"github.com/chromedp/cdproto/page"
	"github.com/stretchr/testify/require"

	"github.com/idem-go/idem/examples/internal/program"
)

var update = flag.Bool("update", false, "write the pictures in docs/img anew")

const (
	pictures = "../../docs/img"
	maxBytes = 100 << 10
)

// TestPictures takes the pictures of the documentation. Without -update it only checks that they can be
// taken and that each is there: another machine has other fonts.
func TestPictures(t *testing.T) {
	dir := program.Build(t, "..", programs()[0])
	p := newPerson(t, launch(t), program.Start(t, filepath.Join(dir, programs()[0]), "-admin", admin))

	p.viewport(360, 640)
	p.order()
	p.picture("checkout-phone")
	p.prefers("dark")
	p.fill("#name", "")
	p.fill("#card", "0000")
	p.click("button", 1)
	p.shows("Error: Checkout")
	p.picture("mistakes-phone-dark")

	p.prefers("light")
	p.viewport(900, 640)
	p.picture("mistakes-desktop")
	p.fill("#name", "Ann")
	p.fill("#card", "")
	p.click("button", 1)
	p.receipt()
	p.back("Error: Checkout")
	p.click("button", 1)
	p.receipt()
	p.picture("receipt-desktop")
	p.viewport(360, 640)
	p.picture("receipt-phone")
	p.back("Error: Checkout")
	p.fill("#tins", "3")
	p.click("button", 1)
	p.shows("Already ordered")
	p.picture("already-ordered-phone")

	p.open("/try")
	p.prefers("dark")
	p.try("tap")
	p.picture("try-phone-dark")
	p.prefers("light")
	p.viewport(560, 640)
	p.try("death")
	p.picture("try-desktop")
	p.viewport(360, 640)

	require.Equal(t, 503, p.charge("X-Demo-Status", "503"))
	p.header("Authorization", "Basic "+base64.StdEncoding.EncodeToString([]byte(admin)))
	p.open("/admin/idempotency/")
	p.prefers("dark")
	p.picture("operator-phone-dark")
	p.prefers("light")
	p.viewport(1100, 640)
	p.click("a.digest", 1)
	p.until(release)
	p.picture("operation-desktop")
}

// picture takes a picture of the whole page.
func (p *tab) picture(name string) {
	p.Helper()
	shot := callFor(p, page.CaptureScreenshot, page.CaptureScreenshotParams{
		Format: page.CaptureScreenshotFormatPng, CaptureBeyondViewport: new(true)}).Data
	p.settled()
	taken, err := png.DecodeConfig(bytes.NewReader(shot))
	require.NoError(p, err)

	file := filepath.Join(pictures, name+".png")
	if *update {
		require.NoError(p, os.WriteFile(file, reduced(p.T, shot), 0o644))
	}
	kept, err := os.ReadFile(file)
	require.NoError(p, err, "run the test with -update")
	require.Less(p, len(kept), maxBytes, name)
	stands, err := png.DecodeConfig(bytes.NewReader(kept))
	require.NoError(p, err)
	require.Equal(p, taken.Width, stands.Width, name)
}

// reduced is a picture in the 256 colours that it has most of. It is a third as large: the edges of letters have a thousand.
func reduced(t *testing.T, shot []byte) []byte {
	whole, err := png.Decode(bytes.NewReader(shot))
	require.NoError(t, err)
	pixels := map[color.Color]int{}
	for y := range whole.Bounds().Dy() {
		for x := range whole.Bounds().Dx() {
			pixels[whole.At(x, y)]++
		}
	}
	colours := slices.SortedFunc(maps.Keys(pixels), func(a, b color.Color) int { return pixels[b] - pixels[a] })
	fewer := image.NewPaletted(whole.Bounds(), colours[:min(256, len(colours))])
	draw.Draw(fewer, whole.Bounds(), whole, image.Point{}, draw.Src)
	var file bytes.Buffer
	require.NoError(t, png.Encode(&file, fewer))
	return file.Bytes()
}
