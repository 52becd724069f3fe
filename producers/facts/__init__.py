"""Operations on an owner's facts."""
