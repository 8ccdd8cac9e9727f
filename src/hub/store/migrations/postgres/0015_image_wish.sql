-- The number of the wish in `desired_image`: it rises whenever that is another image, or none. By it a verdict on an image is known
-- for one on the wish before, where the image was withdrawn and given anew.
ALTER TABLE cluster ADD COLUMN image_wish BIGINT NOT NULL DEFAULT 0;
