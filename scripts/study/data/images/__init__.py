"""Images as data: layouts of users' files, synthetic images, and the formats from which training reads them."""
